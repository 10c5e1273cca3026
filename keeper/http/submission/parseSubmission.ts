import type { ServedNetwork } from '@tollkeeper/chain/servedNetworks'
import { nameOf } from '@tollkeeper/ledger/acceptance/submissions'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { encodePayload, parsePayload, type SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { type Address, type Hex, keccak256, toBytes } from 'viem'
import { z } from 'zod'
import { authorization, parse, toSigned } from '../facilitator/request.ts'

/** Maximum number of transfers: two for each payment of the largest batch. */
const maxTransfers = 344

const transferObject = z.strictObject({ ...authorization.shape, signature: z.string() })
const bodySchema = z.strictObject({
  network: z.string().optional(),
  transfers: z
    .array(z.union([z.string(), transferObject]))
    .min(1)
    .max(maxTransfers),
})

/** The parsed body of `POST /submit`. */
export type Submission = {
  served: ServedNetwork
  transfers: SignedAuthorization[]
  /** Identifies the submission: the key is the same for the same transfers in any order. */
  key: Hex
}

/**
 * Parses the body of `POST /submit`.
 *
 * @throws {BaseError} for faults that a retry can't fix: a wrong format, network or amount, or a nonce that occurs twice
 */
export function parseSubmission(networks: readonly ServedNetwork[], body: unknown): Submission {
  const refuse = (fault: string) => new BaseError('invalid_request', fault)
  const { network, transfers: given } = parse(bodySchema, body, refuse)
  const served = findNetwork(networks, network)
  const transfers = given.map((one) =>
    typeof one === 'string' ? parsePayload(one) : toSigned(one, one.signature),
  )
  if (new Set(transfers.map(nameOf)).size !== transfers.length) {
    throw new BaseError(
      'nonce_reused',
      'Two of the transfers have the same payer and nonce: sign one of them with a new nonce',
    )
  }
  const empty = transfers.findIndex(({ value }) => value === 0n)
  if (empty >= 0)
    throw new BaseError('amount_too_low', 'A transfer of 0 cannot be settled: sign an amount above 0', {
      details: { transfer: empty },
    })
  return { served, transfers, key: keyOf(served.network.chainId, served.token, transfers) }
}

/** Finds the named network, or the only one if none is named. */
function findNetwork(networks: readonly ServedNetwork[], name: string | undefined): ServedNetwork {
  const found =
    name === undefined && networks.length === 1
      ? networks[0]
      : networks.find((one) => one.network.name === name)
  if (found) return found
  const names = networks.map((one) => one.network.name).join(', ')
  if (name === undefined)
    throw new BaseError('invalid_request', `network: expected one of ${names}, because several are served`)
  throw new BaseError('unknown_network', `Expected one of ${names}, got "${name.slice(0, 80)}"`)
}

function keyOf(chainId: number, token: Address, transfers: readonly SignedAuthorization[]): Hex {
  const lines = transfers.map(encodePayload).sort()
  return keccak256(toBytes([chainId, token, ...lines].join('\n')))
}
