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

/** Where a client keeps its open tabs. */
export type TabOptions = {
  /** Keeps open tabs beyond the end of the process. Default: the client's memory. */
  store?: TabStore
}

/** An open tab, with the amounts that the client counts, in USDC base units. */
export type OpenTab = {
  id: string
  /** The gateway's public URL. */
  gateway: string
  network: NetworkName
  /** Expiry in Unix seconds. The tab can't settle afterwards. */
  expiry: number
  /** The number of the newest request on the tab. */
  sequence: number
  lines: {
    provider: Address
    /** The amount bought: the sum of what all requests were charged. Refused and voided requests don't count. */
    bought: bigint
    /** The amount of the newest state: the maximum that can settle once the gateway has that state. */
    signed: bigint
  }[]
}

export type TabsSettings = TabOptions & {
  payer: Signer
  /** Asks gateways about tabs. Undefined: the client doesn't close tabs. */
  gateway?: TabGateway | undefined
  log: (message: string) => void
}

/** Maximum number of attempts to close a tab. An attempt fails if the gateway charges another request while the last state is being signed. */
const closeAttempts = 3

/** Maximum number of tabs that are remembered as closed. */
const maxClosed = 1_000

export type Tabs = ReturnType<typeof createTabs>

/** Keeps tabs: signs the next state for each request, and counts what was bought. */
export function createTabs(settings: TabsSettings) {
  const { payer, store = noTabStore, log } = settings
  const memory = createTabMemory(store, payer)
  const { tabs, loaded, save } = memory
  const inLine = createLine()
  const { closeTab, revise, tellIdle } = createTabCloser(settings, memory, inLine)

  /** Returns a tab of the offer's gateway that can take the price, and opens one if there is none. Leaves tabs that can't take requests any more. */
  function choose(offer: TabOffer): Tab {
    const now = Math.floor(Date.now() / 1000)
    for (const tab of tabs.values()) {
      if (tab.state !== 'open' || tab.issuer !== offer.issuer || tab.network !== offer.network.name) continue
      if (!canTake(tab, offer, now)) leave(tab.id)
      // Keep a crowded tab: it can take another line as soon as its requests get their responses.
      else if (!isCrowded(tab, offer)) return tab
    }
    const tab = beginTab(offer, payer, now)
    tabs.set(tab.id, tab)
    log(`opened ${tab.id} at ${offer.issuer}`)
    return tab
  }

  /**
   * Signs the next state of a tab, which adds the offer's price to the offer's line. The request counts as bought unless {@link finalize} reports
   * another outcome.
   *
   * States for one gateway are signed one after the other, so that each state includes the amounts of all earlier states.
   *
   * @param signal if it has fired, the signed state is not sent and doesn't count.
   * @throws {ChallengeRefusedError} if the payer doesn't sign, or if the state can't be saved. The state is not sent then.
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
        finalize({ tab: tab.id, sequence }, { charged: 0n })
        throw error
      }
    })
  }

  /** Ends a request with its outcome. The next request on the line first uses the amount that this request didn't charge. */
  function finalize({ tab: id, sequence }: Pick<TabPayload, 'tab' | 'sequence'>, outcome: Outcome): void {
    const tab = tabs.get(id)
    if (!tab) return
    countOutcome(tab, sequence, outcome)
    if (tab.inFlight.size === 0) tellIdle()
  }

  /**
   * Applies what a response reports about its request's tab. The seller writes the response and could name any tab or any number of lines,
   * so only the tab and the lines in the request itself count.
   */
  function acknowledge(response: TabResponse, request: TabPayload): void {
    const tab = tabs.get(request.tab)
    if (!tab || response.id !== request.tab) return
    countResponse(tab, response, request)
    if (response.closing) leave(tab.id)
  }

  /** Stops using a tab, and closes the tab in the background. */
  function leave(id: string): void {
    const tab = tabs.get(id)
    if (tab?.state !== 'open') return
    tab.state = 'left'
    void closeTab(tab).catch((error) => log(`${id} could not be closed: ${error}`))
  }

  return {
    sign,
    finalize,
    acknowledge,
    revise,

    async list(): Promise<OpenTab[]> {
      await loaded()
      return [...tabs.values()]
        .filter(({ state, lines }) => state === 'open' && lines.length > 0)
        .map(describeTab)
    },

    /**
     * Closes every tab that is large enough to settle, for the sum of its charged requests. If a tab can't be closed, tries the other tabs before it
     * throws.
     */
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

/** Creates the functions that close tabs. Last states are signed in sequence with all other states for the same gateway. */
function createTabCloser(
  { payer, gateway, log }: TabsSettings,
  { tabs, save, remove }: TabMemory,
  inLine: InLine,
) {
  const idle: (() => void)[] = []
  const closed = new Set<string>()

  /**
   * Closes a tab with a state of exactly what was bought, once no request on it is in progress. If the gateway has charged less, for example because
   * a request was lost, the state contains the lower amount. If the gateway has charged more, the state covers the difference only up to the
   * signed amounts that sellers reported as not charged.
   *
   * @param keepsSmall whether to keep a tab that is too small to settle.
   * @returns whether the gateway has closed the tab.
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

  /** Closes a tab with the amount that its gateway has charged. @returns false if the tab is too small to settle. */
  async function closeAtGateway(tab: Tab, at: TabGateway): Promise<boolean> {
    for (let attempt = 1; ; attempt++) {
      const charged = await at.read(tab.id)
      // The tab is closed or unknown at the gateway, or the gateway knows no line of it, so there is nothing to settle.
      if (typeof charged !== 'object' || charged.length === 0) return true
      catchUp(tab, charged)
      tab.sequence++
      try {
        return await at.close(await signState(payer, tab, lastState(tab, charged)))
      } catch (error) {
        // If a request's response was lost, the gateway may charge it while the last state is being signed.
        if (!(error instanceof ClientError) || error.code !== 'tab_behind' || attempt === closeAttempts)
          throw error
      }
    }
  }

  /** @param isClosed whether the gateway has also closed the tab. */
  async function finish(tab: Tab, isClosed: boolean): Promise<void> {
    tab.state = 'closed'
    if (isClosed) closed.add(tab.id)
    // A tab that was removed from this set counts as not closed at the gateway, so its refused requests aren't bought again.
    if (closed.size > maxClosed) closed.delete(closed.values().next().value ?? '')
    await remove(tab)
  }

  /**
   * Leaves a tab on which a request was refused, so that the client can buy the request again. The seller could present the refused state later.
   * Before the client signs again, the gateway must therefore be unable to accept that state. This is certain in two cases: the gateway has closed or
   * doesn't know the tab; or the gateway has charged amounts that sellers reported as not charged, so that the state's amounts no longer suffice for
   * the request. If there is no gateway to ask, the client believes the seller.
   *
   * A gateway that was restored from a backup, or failed over, may not know the tab, or may know only some of its lines. The client leaves such a
   * tab: it closes the part that the gateway knows, and opens another tab. If the gateway's lost data returns, one state of the abandoned tab can
   * still settle. Its amount is at most that of the newest state: what was bought on the tab, plus the prices of the refused requests.
   *
   * @returns false if the tab can't be left; `covers` if the refused state can't be accepted any more and the same tab can be used again.
   */
  async function revise(refused: TabPayload, price: bigint): Promise<boolean | 'covers'> {
    const id = refused.tab
    const tab = tabs.get(id)
    if (!tab) return closed.has(id)
    try {
      const stands = gateway && (await gateway.read(id))
      if (stands === 'unknown') {
        // If the gateway never knew the tab, the client tries the tab again: the next state belongs to the same tab, so only one of the two can be
        // charged.
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

  /** Resumes work that waits until the tab has no request in progress. */
  function tellIdle(): void {
    for (const tell of idle.splice(0)) tell()
  }

  return { closeTab, revise, tellIdle }
}

type TabMemory = ReturnType<typeof createTabMemory>

/** Creates the memory of one payer's tabs by id, which loads tabs from the store and saves them there. */
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

    /** Loads the tabs once. If that fails, the next payment tries again. */
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

/** Returns a function that runs work with the same key in sequence. */
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
  return new ChallengeRefusedError('the store of open tabs failed', { code: 'tab_store_failed', cause })
}
