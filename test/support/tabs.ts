import { randomBytes } from 'node:crypto'
import { callGasLimit } from '@tollkeeper/chain/gas'
import { takeTabs } from '@tollkeeper/ledger/acceptance/takeTabs'
import { newId } from '@tollkeeper/ledger/store/identifiers'
import { triggerCodes } from '@tollkeeper/sdk/protocol/batchSettlement'
import { eip712Domain, receiveWithAuthorizationTypes } from '@tollkeeper/sdk/protocol/eip3009'
import type { SignedAuthorization } from '@tollkeeper/sdk/protocol/payload'
import { encodeSplit } from '@tollkeeper/sdk/protocol/splitter'
import { platformPart, type TabLine, tabAuthorization } from '@tollkeeper/sdk/protocol/tab'
import { encodeSettleTabs } from '@tollkeeper/sdk/protocol/tabSettlement'
import { type Address, createWalletClient, type Hash, http } from 'viem'
import type { PrivateKeyAccount } from 'viem/accounts'
import { devAccount } from '../../apps/devstack/chain/accounts.ts'
import { type KeeperStack, platformWallet } from './keeperStack.ts'
import { randomHex } from './usdc.ts'

const issuer = 'https://gateway.example'

export type TabOptions = {
  buyer: PrivateKeyAccount
  /**
   * The amount owed on each line in USDC base units, and the line's payee. The default payee is the registered provider. Any
   * other payee isn't registered.
   */
  lines: readonly { amount: bigint; payee?: Address }[]
  /** Basis points. Default 1,000. */
  rewardShare?: number
  /** Default: {@link platformWallet}. */
  platform?: Address
  closedAt?: Date
  /** Seconds from now. */
  validFor?: number
  /** Changes the signed values, but not the stored ones. */
  sign?: (state: SignedState) => SignedState
}

/** A signed state of a tab. */
export type SignedState = {
  tabId: string
  sequence: number
  expiry: number
  rewardShare: number
  platform: Address
  lines: TabLine[]
  authorization: SignedAuthorization
}

/** A closed tab that the ledger has accepted. */
export type ClosedPayment = { paymentId: string; buyer: PrivateKeyAccount; state: SignedState }

type Stack = Pick<KeeperStack, 'database' | 'served' | 'payee'>

/** Signs a state of a tab. */
async function signState(
  { served }: Pick<KeeperStack, 'served'>,
  buyer: PrivateKeyAccount,
  state: Omit<SignedState, 'authorization'>,
): Promise<SignedState> {
  const { network, token, deployment } = served
  const { platform, rewardShare } = state
  const payer = buyer.address.toLowerCase() as Address
  const { primaryType, ...message } = tabAuthorization(
    { issuer, chainId: network.chainId, contract: deployment.tabSettlement, platform, rewardShare },
    { ...state, payer },
  )
  const domain = eip712Domain(network, token)
  const types = receiveWithAuthorizationTypes
  const signature = await buyer.signTypedData({ domain, types, primaryType, message })
  return { ...state, authorization: { ...message, signature, primaryType } }
}

/** Stores a closed tab as the gateway does: reserves its amount, and accepts it as a payment with its sales and a real signature. */
export async function closeTab(stack: Stack, options: TabOptions): Promise<ClosedPayment> {
  const { database, served, payee } = stack
  const { buyer, closedAt = new Date(), rewardShare = 1_000, platform = platformWallet } = options
  const { sign = (state) => state } = options
  const tabId = `tab_${randomBytes(16).toString('hex')}`
  const wallets = options.lines.map((line) => line.payee ?? payee)
  const shares = { providerShare: 19n, platformShare: 1n }
  const lines = options.lines.map(({ amount }, index) => ({
    split: encodeSplit({ provider: wallets[index] as Address, ...shares }),
    amount,
  }))
  const expiry = Math.floor(Date.now() / 1000) + (options.validFor ?? 93_600)
  const state = sign(
    await signState(stack, buyer, { tabId, sequence: 9, expiry, rewardShare, platform, lines }),
  )
  const { authorization } = state
  const { chainId } = served.network
  const total = lines.reduce((sum, { amount }) => sum + amount, 0n)
  await database`
    select reserve_for_tab(${tabId}, ${chainId}, ${served.token}, ${authorization.from}, ${authorization.nonce}, ${total}, ${total}, null, null, null, current_date)`
  const [own] = await database<{ providerId: string; endpointId: string }[]>`
    select w.provider_id as "providerId", e.id as "endpointId" from wallet w join endpoint e on e.wallet_id = w.id
    where w.address = ${payee}`
  const paymentId = newId('pay')
  const acceptedAt = closedAt.getTime()
  await takeTabs(database, [
    {
      paymentId,
      tabId,
      chainId,
      token: served.token,
      payer: authorization.from,
      payerHasCode: false,
      contract: served.deployment.tabSettlement,
      platform,
      rewardShare,
      sequence: 9,
      requests: lines.length,
      closeReason: 'idle',
      openedAt: acceptedAt - 60_000,
      closedAt: acceptedAt,
      expiresAt: expiry,
      nonce: authorization.nonce,
      signature: authorization.signature,
      lines: lines.map(({ amount }, index) => ({
        payee: wallets[index] as Address,
        ...shares,
        amount,
        charged: amount,
      })),
      sales: lines.flatMap(({ split, amount }, line) => {
        if (!own || wallets[line] !== payee) return []
        const feeAmount = platformPart(split, amount)
        return [{ ...own, line, requests: 1, providerAmount: amount - feeAmount, feeAmount, acceptedAt }]
      }),
    },
  ])
  return { paymentId, buyer, state }
}

/** Signs an earlier state of a closed tab, as its buyer did then. */
export function signOlder(
  stack: Pick<KeeperStack, 'served'>,
  { buyer, state }: ClosedPayment,
  amounts: readonly bigint[],
): Promise<SignedState> {
  const { authorization: _, ...newest } = state
  const lines = amounts.flatMap((amount, index) => {
    const line = newest.lines[index]
    return line ? [{ ...line, amount }] : []
  })
  return signState(stack, buyer, { ...newest, sequence: newest.sequence - 1, lines })
}

/** Signs the newest state of a closed tab again, under the buyer's own terms. */
export function signUnder(
  stack: Pick<KeeperStack, 'served'>,
  { buyer, state }: ClosedPayment,
  terms: Partial<Pick<SignedState, 'platform' | 'rewardShare'>>,
): Promise<SignedState> {
  const { authorization: _, ...newest } = state
  return signState(stack, buyer, { ...newest, ...terms })
}

/**
 * Settles states of tabs with the same platform and reward from a stranger's account; doesn't wait until the
 * transaction is mined.
 */
export async function settleStates(
  { chain, served }: Pick<KeeperStack, 'chain' | 'served'>,
  states: readonly [SignedState, ...SignedState[]],
  account = devAccount(18),
): Promise<Hash> {
  const [{ platform: feeRecipient, rewardShare }] = states
  const batch = { token: served.token, feeRecipient, rewardShare, batchId: randomHex(32) }
  const { calldata } = encodeSettleTabs(
    { ...batch, trigger: triggerCodes.submission, callGasLimit: callGasLimit(false) },
    states.map(({ authorization: { from: payer, nonce, signature }, ...state }) => ({
      ...state,
      payer,
      nonce,
      signature,
    })),
  )
  const wallet = createWalletClient({ account, transport: http(chain.url) })
  const to = served.deployment.tabSettlement
  return wallet.sendTransaction({ to, data: calldata, gas: 5_000_000n, chain: null })
}

/** Returns the amount that each line of a closed tab moved, if another state of the tab was settled. */
export async function movedOf(
  { database }: Pick<KeeperStack, 'database'>,
  { paymentId }: { paymentId: string },
): Promise<(bigint | null)[]> {
  const rows = await database<{ moved: bigint | null }[]>`
    select moved from tab_line where payment_id = ${paymentId} order by position`
  return rows.map(({ moved }) => moved)
}
