import { BaseError } from '@tollkeeper/sdk/protocol/errors'

/** A refusal by the gateway: it understood the request but doesn't fulfill it. The code determines the HTTP status. */
export class Refusal extends BaseError {
  override readonly name = 'Refusal'
}
