import { BaseError } from '#protocol/errors'

/** The gateway's own no: a request that is understood and not fulfilled. Its code says the HTTP status. */
export class Refusal extends BaseError {
  override readonly name = 'Refusal'
}
