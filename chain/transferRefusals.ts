import type { Address, ContractFunctionParameters } from 'viem'
import { usdcAbi } from '#protocol/abi/usdc'
import type { SignedAuthorization } from '#protocol/payload'
import type { Failure } from './failures.ts'
import type { At } from './head.ts'
import type { ServedNetwork } from './servedNetworks.ts'

/**
 * Call data of one `eth_call`, Multicall3's own encoding left out. A call without a contract is creation code: what it
 * returns has at most 24,576 bytes (EIP-170), 160 a question, of which the shortest has 36 bytes of call data.
 */
const callDataBytes = 5_000

const pausedToken: Failure = { owner: 'token', code: 'token_paused', detail: 'the token is paused' }
const usedNonce: Failure = {
  owner: 'race',
  code: 'authorization_used',
  detail: 'authorization is used or canceled',
}

/**
 * Why the token would refuse transfers, from its storage: paused, blacklisted, used or cancelled, short balance. Windows and
 * signatures aren't looked at. Some ten calls answer it for 344 transfers, where asking the token to run each takes 344.
 *
 * @param transfers in the order in which they are to be made: a payer's balance goes to its first ones.
 * @returns for each transfer its refusal, or null.
 * @throws if the chain gives no answer to one of the questions.
 */
export async function findRefusals(
  { client, token }: Pick<ServedNetwork, 'client' | 'token'>,
  transfers: readonly Omit<SignedAuthorization, 'signature'>[],
  at: At,
): Promise<(Failure | null)[]> {
  const payers = [...new Set(transfers.map(({ from }) => from))]
  const accounts = [...new Set(transfers.flatMap(({ from, to }) => [from, to]))]
  const ask = (functionName: string, args: unknown[] = []) =>
    ({ address: token, abi: usdcAbi, functionName, args }) as ContractFunctionParameters
  const answers = await client.multicall({
    deployless: true,
    batchSize: callDataBytes,
    allowFailure: false,
    contracts: [
      ask('paused'),
      ...transfers.map(({ from, nonce }) => ask('authorizationState', [from, nonce])),
      ...accounts.map((account) => ask('isBlacklisted', [account])),
      ...payers.map((payer) => ask('balanceOf', [payer])),
    ],
    ...at,
  })
  const isPaused = answers[0] as boolean
  const isUsed = answers.slice(1, 1 + transfers.length) as boolean[]
  const blacklist = answers.slice(1 + transfers.length, 1 + transfers.length + accounts.length)
  const balances = answers.slice(1 + transfers.length + accounts.length) as bigint[]
  const blacklisted = new Set(accounts.filter((_, index) => blacklist[index] === true))
  const left = new Map(payers.map((payer, index) => [payer, balances[index] ?? 0n]))
  return transfers.map((transfer, index) => {
    if (isPaused) return pausedToken
    if (isUsed[index]) return usedNonce
    return findBlacklisted(transfer, blacklisted) ?? spend(transfer, left)
  })
}

function findBlacklisted(
  { from, to }: Pick<SignedAuthorization, 'from' | 'to'>,
  blacklisted: ReadonlySet<Address>,
): Failure | null {
  const account = [from, to].find((one) => blacklisted.has(one))
  return account
    ? { owner: 'payment', code: 'account_blacklisted', detail: `${account} is blacklisted by the token` }
    : null
}

function spend(
  { from, value }: Pick<SignedAuthorization, 'from' | 'value'>,
  left: Map<Address, bigint>,
): Failure | null {
  const balance = left.get(from) ?? 0n
  if (balance < value) {
    const detail = `transfer amount exceeds balance: ${from} has ${balance} left for ${value}`
    return { owner: 'payment', code: 'insufficient_balance', detail }
  }
  left.set(from, balance - value)
  return null
}
