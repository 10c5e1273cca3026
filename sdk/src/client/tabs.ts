import type { Address } from 'viem'
import { bytesToHex } from '../protocol/bytes.ts'
import { maxTimeoutSeconds } from '../protocol/challenge.ts'
import { tabSettlement } from '../protocol/deployments.ts'
import { type NetworkName, networkByName } from '../protocol/networks.ts'
import {
  encodeTabPayload,
  maxTabLines,
  providerOfSplit,
  type TabPayload,
  tabAuthorization,
  toWord,
} from '../protocol/tab.ts'
import type { TabResponse } from '../protocol/x402.ts'
import { ChallengeRefusedError, ClientError } from './errors.ts'
import type { TabOffer } from './offers.ts'
import { requireDeployed, type Signer, signAuthorization } from './payer.ts'
import type { TabGateway } from './tabGateway.ts'
import { noTabStore, type SavedTab, type TabStore } from './tabStore.ts'

/** How a client keeps tabs. */
export type TabOptions = {
  /** Where open tabs are kept, so that they outlive the process. Default: the client's memory. */
  store?: TabStore
}

/** A tab that is open, as its client counts it. Amounts are USDC base units. */
export type OpenTab = {
  id: string
  /** The gateway's public URL. */
  gateway: string
  network: NetworkName
  /** Unix seconds: later than this it can't settle. */
  expiry: number
  /** The number of its newest request. */
  sequence: number
  lines: {
    provider: Address
    /** What was bought: the prices of all requests but those that were refused, voided, or charged less. */
    bought: bigint
    /** What the newest state signs: the most that can move as soon as the gateway has it. */
    signed: bigint
  }[]
}

/** What became of a request: charged so much at most, in base units, or its answer is lost. */
export type Outcome = { charged: bigint } | 'unknown'

/** `bought` is below zero as long as the credit that the line began with isn't used up. */
type Line = { split: bigint; bought: bigint; credit: bigint; signed: bigint }

type Tab = Omit<SavedTab, 'lines'> & {
  lines: Line[]
  /** Requests whose outcome isn't known, by number. */
  open: Map<number, { line: number; price: bigint }>
  /** Those of them that are being signed or sent. */
  inFlight: Set<number>
  /** `left`: nothing more is put on it, and it is to be closed. */
  state: 'open' | 'left' | 'closed'
}

export type TabsSettings = TabOptions & {
  payer: Signer
  /** Absent: tabs are left to close by themselves. */
  gateway?: TabGateway | undefined
  log: (message: string) => void
}

/** The tabs of one payer. */
export type Tabs = ReturnType<typeof createTabs>

/** A tab isn't gone on with when so much of its time is left, or half of its life. */
const leastSecondsLeft = 3_600

/** Keeps tabs: signs the next state for each request, and remembers what was bought. */
export function createTabs({ payer, store = noTabStore, gateway, log }: TabsSettings) {
  const tabs = new Map<string, Tab>()
  const inLine = createLine()
  let loading: Promise<void> | undefined
  const idle: (() => void)[] = []

  async function load(): Promise<void> {
    for (const saved of await store.load()) {
      if (saved.payer !== payer.address.toLowerCase() || saved.contract !== tabSettlement) continue
      const lines = saved.lines.map(({ split, bought, credit, signed }) => ({
        ...{ split: BigInt(split), bought: BigInt(bought), credit: BigInt(credit), signed: BigInt(signed) },
      }))
      tabs.set(saved.id, { ...saved, lines, open: new Map(), inFlight: new Set(), state: 'open' })
    }
  }

  /** Loads once; after a failure the next payment tries again. */
  async function loaded(): Promise<void> {
    loading ??= load()
    await loading.catch((cause) => {
      loading = undefined
      throw storeFailed(cause)
    })
  }

  /** The open tab that an offer's price is put on. Those of its gateway that don't fit are left. */
  function choose(offer: TabOffer): Tab {
    const now = Math.floor(Date.now() / 1000)
    const lifetime = Math.min(offer.maxTimeoutSeconds, maxTimeoutSeconds)
    for (const tab of tabs.values()) {
      if (tab.state !== 'open' || tab.issuer !== offer.issuer || tab.network !== offer.network.name) continue
      const fits =
        tab.platform === offer.platform &&
        tab.rewardShare === offer.rewardShare &&
        tab.asset === offer.usdc &&
        tab.expiry - now > Math.min(leastSecondsLeft, lifetime / 2) &&
        (tab.lines.length < maxTabLines || tab.lines.some(({ split }) => split === offer.split))
      if (fits) return tab
      leave(tab.id)
    }
    const { issuer, platform, rewardShare } = offer
    const tab: Tab = {
      id: `tab_${bytesToHex(crypto.getRandomValues(new Uint8Array(16))).slice(2)}`,
      ...{ issuer, platform, rewardShare, asset: offer.usdc, contract: tabSettlement },
      network: offer.network.name,
      payer: payer.address.toLowerCase() as Address,
      expiry: now + lifetime,
      ...{ sequence: 0, known: 0, lines: [], open: new Map(), inFlight: new Set(), state: 'open' },
    }
    tabs.set(tab.id, tab)
    log(`opened ${tab.id} at ${issuer}`)
    return tab
  }

  /** Signs these amounts as the tab's next state. */
  async function signState(tab: Tab, line: number, lines: { split: bigint; amount: bigint }[]) {
    const { id: tabId, sequence, expiry, known } = tab
    await requireDeployed(payer)
    const authorization = tabAuthorization(tab, { ...tab, tabId, lines })
    const signature = await signAuthorization(payer, networkByName(tab.network), tab.asset, authorization)
    return encodeTabPayload({
      ...{ tabId, payer: tab.payer, sequence, expiry, line, known, signature },
      splits: lines.slice(known).map(({ split }) => split),
      amounts: lines.map(({ amount }) => amount),
    })
  }

  /**
   * Signs the next state of a tab, with the offer's price on the offer's line. The request counts as bought until {@link conclude}
   * says otherwise.
   *
   * States of one gateway are signed one after the other, so that none misses what another adds.
   *
   * @param signal once it has fired, what is signed is shown to nobody, and counts for nothing.
   * @throws {ChallengeRefusedError} where the payer doesn't sign, or the state can't be saved: nobody was shown it.
   */
  async function sign(offer: TabOffer, signal?: AbortSignal): Promise<TabPayload> {
    await loaded()
    return inLine(`${offer.network.name} ${offer.issuer}`, async () => {
      const tab = choose(offer)
      const sequence = ++tab.sequence
      tab.inFlight.add(sequence)
      try {
        const bought = tab.lines.map(({ split, bought }) => ({ split, bought }))
        let line = bought.findIndex(({ split }) => split === offer.split)
        if (line < 0) line = bought.push({ split: offer.split, bought: 0n }) - 1
        const lines = bought.map(({ split, bought }, index) => ({
          split,
          amount: atLeastZero(index === line ? bought + offer.price : bought),
        }))
        const payload = await signState(tab, line, lines)
        signal?.throwIfAborted()
        // Meanwhile others may have turned out to cost less.
        for (const [index, { split, amount }] of lines.entries()) {
          const known = tab.lines[index]
          if (known) known.signed = amount
          else tab.lines.push({ split, bought: 0n, credit: 0n, signed: amount })
        }
        const changed = tab.lines[line]
        if (changed) changed.bought += offer.price
        tab.open.set(sequence, { line, price: offer.price })
        await store.save(toSaved(tab)).catch((cause) => {
          throw storeFailed(cause)
        })
        return payload
      } catch (error) {
        conclude({ tab: tab.id, sequence }, { charged: 0n })
        throw error
      }
    })
  }

  /** Says what became of a request. What isn't charged is used up by the next one. */
  function conclude({ tab: id, sequence }: Pick<TabPayload, 'tab' | 'sequence'>, outcome: Outcome): void {
    const tab = tabs.get(id)
    if (!tab) return
    tab.inFlight.delete(sequence)
    const request = tab.open.get(sequence)
    if (request && outcome !== 'unknown') {
      tab.open.delete(sequence)
      const line = tab.lines[request.line]
      if (line && outcome.charged < request.price) line.bought -= request.price - outcome.charged
    }
    if (tab.inFlight.size > 0) return
    for (const tell of idle.splice(0)) tell()
  }

  /** Takes what an answer says of its tab. @param index the line that its request added to. */
  function acknowledge({ id, known, credit = '0', closing }: TabResponse, index: number): void {
    const tab = tabs.get(id)
    if (!tab) return
    tab.known = Math.max(tab.known, Math.min(known, tab.lines.length))
    const line = tab.lines[index]
    if (line && BigInt(credit) > line.credit) {
      line.bought -= BigInt(credit) - line.credit
      line.credit = BigInt(credit)
    }
    if (closing) leave(id)
  }

  /** Puts nothing more on a tab, and closes it in the background. @param isClosed its gateway has closed it. */
  function leave(id: string, isClosed = false): void {
    const tab = tabs.get(id)
    if (!tab || tab.state === 'closed') return
    if (isClosed) void finish(tab).catch(() => {})
    else if (tab.state === 'open') {
      tab.state = 'left'
      void closeTab(tab).catch((error) => log(`${id} could not be closed: ${error}`))
    }
  }

  /**
   * Closes a tab with a state of exactly what was bought, once no request of it is on its way. Where the gateway has charged less, of a
   * request whose answer was lost, say, that counts; where it says more, it doesn't.
   *
   * @param keepsSmall goes on with one that is too small to settle.
   */
  async function closeTab(tab: Tab, keepsSmall = false): Promise<void> {
    while (tab.inFlight.size > 0) await new Promise<void>((resolve) => idle.push(resolve))
    await inLine(`${tab.network} ${tab.issuer}`, async () => {
      if (tab.state === 'closed') return
      const charged = gateway && tab.expiry > Date.now() / 1000 ? await gateway.read(tab.id) : undefined
      if (gateway && charged) {
        const lines = tab.lines.slice(0, charged.length).map(({ split, bought }) => {
          const theirs = charged.find((line) => line.split === split)?.charged ?? 0n
          return { split, amount: atLeastZero(theirs < bought ? theirs : bought) }
        })
        tab.sequence++
        const isClosed = await gateway.close(await signState(tab, 0, lines))
        if (!isClosed && keepsSmall) {
          tab.state = 'open'
          await store.save(toSaved(tab))
          return
        }
      }
      await finish(tab)
      log(`closed ${tab.id}`)
    })
  }

  async function finish(tab: Tab): Promise<void> {
    tab.state = 'closed'
    tabs.delete(tab.id)
    await store.remove(tab.id)
  }

  return {
    ...{ sign, conclude, acknowledge, leave },

    async list(): Promise<OpenTab[]> {
      await loaded()
      return [...tabs.values()].flatMap(({ id, issuer: gateway, network, expiry, sequence, lines, state }) =>
        state !== 'open' || lines.length === 0
          ? []
          : {
              ...{ id, gateway, network, expiry, sequence },
              lines: lines.map(({ split, bought, signed }) => ({
                ...{ provider: providerOfSplit(split), bought: atLeastZero(bought), signed },
              })),
            },
      )
    },

    /** Closes all tabs but those that are too small to settle, each with what was bought on it. Tries all before it throws. */
    async close(): Promise<void> {
      await loaded()
      const closing = [...tabs.values()].map((tab) => {
        tab.state = 'left'
        return closeTab(tab, true)
      })
      const failed = (await Promise.allSettled(closing)).find(({ status }) => status === 'rejected')
      if (failed?.status === 'rejected') throw failed.reason
    },
  }
}

/** Runs what has one key one after the other. */
function createLine() {
  const last = new Map<string, Promise<unknown>>()
  return async <Result>(key: string, work: () => Promise<Result>): Promise<Result> => {
    const before = last.get(key) ?? Promise.resolve()
    const result = before.then(work, work)
    last.set(key, result)
    try {
      return await result
    } finally {
      if (last.get(key) === result) last.delete(key)
    }
  }
}

function toSaved({ lines, open: _, inFlight: __, state: ___, ...tab }: Tab): SavedTab {
  return {
    ...tab,
    lines: lines.map(({ split, bought, credit, signed }) => ({
      ...{ split: toWord(split), bought: bought.toString() },
      ...{ credit: credit.toString(), signed: signed.toString() },
    })),
  }
}

function atLeastZero(amount: bigint): bigint {
  return amount < 0n ? 0n : amount
}

function storeFailed(cause: unknown): unknown {
  if (cause instanceof ClientError) return cause
  return new ChallengeRefusedError('the open tabs could not be kept', { code: 'tab_store_failed', cause })
}
