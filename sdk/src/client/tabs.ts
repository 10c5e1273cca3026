import type { Address } from 'viem'
import { atLeastZero } from '../protocol/amount.ts'
import { tabSettlement } from '../protocol/deployments.ts'
import type { NetworkName } from '../protocol/networks.ts'
import { providerOfSplit, type TabPayload } from '../protocol/tab.ts'
import type { TabResponse } from '../protocol/x402.ts'
import { ChallengeRefusedError, ClientError } from './errors.ts'
import type { TabOffer } from './offers.ts'
import type { Signer } from './payer.ts'
import type { TabGateway } from './tabGateway.ts'
import {
  beginTab,
  canTake,
  catchUp,
  countOutcome,
  countRequest,
  countResponse,
  fromSaved,
  isCrowded,
  isPast,
  lastState,
  nextState,
  type Outcome,
  signState,
  type Tab,
  toSaved,
} from './tabState.ts'
import { noTabStore, type TabStore } from './tabStore.ts'

/** How a client keeps tabs. */
export type TabOptions = {
  /** Where open tabs are kept to outlive the process. Default: the client's memory. */
  store?: TabStore
}

/** An open tab by its client's count. Amounts are USDC base units. */
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
    /** What was bought: the prices of all requests, less what was refused, voided, or charged less. */
    bought: bigint
    /** The newest state's amount: the most that can move as soon as the gateway has it. */
    signed: bigint
  }[]
}

export type TabsSettings = TabOptions & {
  payer: Signer
  /** Absent: tabs are left to close by themselves. */
  gateway?: TabGateway | undefined
  log: (message: string) => void
}

/** How many last states a tab's gateway is offered, if each time more is charged than when it was asked. */
const closeAttempts = 3

/** Most closed tabs that are remembered as such. */
const maxClosed = 1_000

export type Tabs = ReturnType<typeof createTabs>

/** Keeps tabs: signs the next state for each request, and remembers what was bought. */
export function createTabs(settings: TabsSettings) {
  const { payer, store = noTabStore, log } = settings
  const memory = createTabMemory(store, payer)
  const { tabs, loaded, save } = memory
  const inLine = createLine()
  const { closeTab, revise, tellIdle } = createTabCloser(settings, memory, inLine)

  /** The open tab for an offer's price. Tabs of its gateway that don't fit are left. */
  function choose(offer: TabOffer): Tab {
    const now = Math.floor(Date.now() / 1000)
    for (const tab of tabs.values()) {
      if (tab.state !== 'open' || tab.issuer !== offer.issuer || tab.network !== offer.network.name) continue
      if (!canTake(tab, offer, now)) leave(tab.id)
      // It takes new lines again once its requests are answered.
      else if (!isCrowded(tab, offer)) return tab
    }
    const tab = beginTab(offer, payer, now)
    tabs.set(tab.id, tab)
    log(`opened ${tab.id} at ${offer.issuer}`)
    return tab
  }

  /**
   * Signs the next state of a tab, with the offer's price on the offer's line. The request counts as bought until {@link conclude}
   * says otherwise.
   *
   * States for one gateway are signed one after the other, so that none misses what another adds.
   *
   * @param signal once it has fired, the signed state is shown to nobody, and doesn't count.
   * @throws {ChallengeRefusedError} if the payer doesn't sign, or the state can't be saved: nobody was shown it.
   */
  async function sign(offer: TabOffer, signal?: AbortSignal): Promise<TabPayload> {
    await loaded()
    return inLine(`${offer.network.name} ${offer.issuer}`, async () => {
      const tab = choose(offer)
      const sequence = ++tab.sequence
      tab.inFlight.add(sequence)
      try {
        const next = nextState(tab, offer)
        const payload = await signState(payer, tab, next)
        signal?.throwIfAborted()
        countRequest(tab, sequence, next, offer)
        await save(tab).catch((cause) => {
          throw storeFailed(cause)
        })
        return payload
      } catch (error) {
        conclude({ tab: tab.id, sequence }, { charged: 0n })
        throw error
      }
    })
  }

  /** Ends a request with its outcome. What isn't charged is used up by the next one. */
  function conclude({ tab: id, sequence }: Pick<TabPayload, 'tab' | 'sequence'>, outcome: Outcome): void {
    const tab = tabs.get(id)
    if (!tab) return
    countOutcome(tab, sequence, outcome)
    if (tab.inFlight.size === 0) tellIdle()
  }

  /**
   * Takes an answer's word on the tab of its own request. A seller writes the answer, and may name any tab, or any number of lines: only
   * the tab and the lines that the request itself carried count.
   */
  function acknowledge(response: TabResponse, request: TabPayload): void {
    const tab = tabs.get(request.tab)
    if (!tab || response.id !== request.tab) return
    countResponse(tab, response, request)
    if (response.closing) leave(tab.id)
  }

  /** Puts nothing more on a tab, and closes it in the background. */
  function leave(id: string): void {
    const tab = tabs.get(id)
    if (tab?.state !== 'open') return
    tab.state = 'left'
    void closeTab(tab).catch((error) => log(`${id} could not be closed: ${error}`))
  }

  return {
    sign,
    conclude,
    acknowledge,
    revise,

    async list(): Promise<OpenTab[]> {
      await loaded()
      return [...tabs.values()]
        .filter(({ state, lines }) => state === 'open' && lines.length > 0)
        .map(describeTab)
    },

    /** Closes all tabs that are large enough to settle, each with what was bought on it. Tries all before it throws. */
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

/** Closes tabs, each in turn with the other signatures for its gateway. */
function createTabCloser(
  { payer, gateway, log }: TabsSettings,
  { tabs, save, remove }: TabMemory,
  inLine: InLine,
) {
  const idle: (() => void)[] = []
  const closed = new Set<string>()

  /**
   * Closes a tab with a state of exactly what was bought, once no request of it is on its way. If the gateway has charged less, say
   * because a request's answer was lost, that counts. If it has charged more, that counts as far as a seller was shown a signature for
   * it, and said that it isn't charged.
   *
   * @param keepsSmall goes on with a tab that is too small to settle.
   * @returns whether it is closed at its gateway.
   */
  async function closeTab(tab: Tab, keepsSmall = false): Promise<boolean> {
    while (tab.inFlight.size > 0) await new Promise<void>((resolve) => idle.push(resolve))
    return inLine(`${tab.network} ${tab.issuer}`, async () => {
      if (tab.state === 'closed') return closed.has(tab.id)
      const isClosed = !gateway || tab.expiry <= Date.now() / 1000 || (await closeAtGateway(tab, gateway))
      if (!isClosed && keepsSmall) {
        tab.state = 'open'
        await save(tab)
        return false
      }
      await finish(tab, isClosed)
      log(`closed ${tab.id}`)
      return isClosed
    })
  }

  /** Closes a tab with what its gateway has charged. @returns false for one that is too small to settle. */
  async function closeAtGateway(tab: Tab, at: TabGateway): Promise<boolean> {
    for (let attempt = 1; ; attempt++) {
      const charged = await at.read(tab.id)
      // A gateway that knows no line of the tab has nothing to settle.
      if (typeof charged !== 'object' || charged.length === 0) return true
      catchUp(tab, charged)
      tab.sequence++
      try {
        return await at.close(await signState(payer, tab, lastState(tab, charged)))
      } catch (error) {
        // A request whose answer was lost may be charged while the last state is signed.
        if (!(error instanceof ClientError) || error.code !== 'tab_behind' || attempt === closeAttempts)
          throw error
      }
    }
  }

  /** @param isClosed whether its gateway has closed it, too. */
  async function finish(tab: Tab, isClosed: boolean): Promise<void> {
    tab.state = 'closed'
    if (isClosed) closed.add(tab.id)
    // A forgotten tab counts as not closed.
    if (closed.size > maxClosed) closed.delete(closed.values().next().value ?? '')
    await remove(tab)
  }

  /**
   * Gives up a tab on which a request was refused, so that the request may be bought again. Its seller may present the state later, so
   * first the gateway must take it no more: the tab is closed or unknown there, or the same tab has made up for what sellers wrongly
   * called free, which leaves no room for it. Without a gateway to ask, the seller is believed.
   *
   * A gateway that was restored from a backup, or failed over, may not know the tab, or may know fewer of its lines. Such a tab is left:
   * what it knows of it is closed, and another tab is opened. If the old gateway comes back, one state of the lost tab can still settle:
   * at most its newest, which is what was bought on it and the prices of the requests that were refused there.
   *
   * @returns false if that can't be had; `covers` if the same tab has made up for it, so that the held state buys nothing.
   */
  async function revise(refused: TabPayload, price: bigint): Promise<boolean | 'covers'> {
    const id = refused.tab
    const tab = tabs.get(id)
    if (!tab) return closed.has(id)
    try {
      const stands = gateway && (await gateway.read(id))
      if (stands === 'unknown') {
        // A tab that never was at the gateway is tried once more, since its next state is of the same tab: only one can be charged.
        if (tab.known === 0 && !tab.isDoubted) tab.isDoubted = true
        else await finish(tab, true)
        return true
      }
      if (typeof stands === 'object' && catchUp(tab, stands) && isPast(tab, refused, price, stands))
        return 'covers'
      if (stands === undefined || stands === 'closed') {
        await finish(tab, true)
        return true
      }
      tab.state = 'left'
      return await closeTab(tab)
    } catch (error) {
      log(`${id} could not be closed: ${error}`)
      return false
    }
  }

  /** Resumes what waits until no request of its tab is on its way. */
  function tellIdle(): void {
    for (const tell of idle.splice(0)) tell()
  }

  return { closeTab, revise, tellIdle }
}

type TabMemory = ReturnType<typeof createTabMemory>

/** The tabs of one payer by id, in memory and in the store. */
function createTabMemory(store: TabStore, payer: Signer) {
  const tabs = new Map<string, Tab>()
  let loading: Promise<void> | undefined

  async function load(): Promise<void> {
    for (const saved of await store.load()) {
      if (saved.payer !== payer.address.toLowerCase() || saved.contract !== tabSettlement) continue
      tabs.set(saved.id, fromSaved(saved))
    }
  }

  return {
    tabs,

    /** Loads once; after a failure the next payment tries again. */
    async loaded(): Promise<void> {
      loading ??= load()
      await loading.catch((cause) => {
        loading = undefined
        throw storeFailed(cause)
      })
    },

    save: (tab: Tab): Promise<void> => store.save(toSaved(tab)),

    async remove({ id }: Tab): Promise<void> {
      tabs.delete(id)
      await store.remove(id)
    },
  }
}

type InLine = ReturnType<typeof createLine>

/** Runs work with the same key one after the other. */
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

function describeTab({ id, issuer: gateway, network, expiry, sequence, lines }: Tab): OpenTab {
  return {
    id,
    gateway,
    network,
    expiry,
    sequence,
    lines: lines.map(({ split, bought, signed }) => ({
      provider: providerOfSplit(split),
      bought: atLeastZero(bought),
      signed,
    })),
  }
}

function storeFailed(cause: unknown): unknown {
  if (cause instanceof ClientError) return cause
  return new ChallengeRefusedError('the open tabs could not be kept', { code: 'tab_store_failed', cause })
}
