import { probeThoroughly } from '@tollkeeper/api/registry/probeSeller'
import { askedMethod, type JudgedNetwork, type SellerReport } from '@tollkeeper/ledger/discovery/sellerAnswer'
import { finding, type SellerFinding, type Severity } from '@tollkeeper/ledger/discovery/sellerFindings'
import { createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import { formatUsdc } from '@tollkeeper/sdk/protocol/amount'
import { isRecord, textOf } from '@tollkeeper/sdk/protocol/fields'
import { networkByName, networkNames } from '@tollkeeper/sdk/protocol/networks'
import { defaultProfile, profilesPath, readProfiles, sameGateway } from '../profiles/profiles.ts'
import { request } from '../provider/gateway.ts'
import { CliError } from '../terminal/cliError.ts'
import type { Check } from './check.ts'

export type SellerFlags = { seller: string; method?: string; gateway?: string; apiKey?: string }

/** The result of examining a seller. */
export type SellerExamination = {
  url: string
  method: string
  sent: 'GET' | 'POST'
  httpStatus: number | null
  /** Whether there is no finding that is an error. */
  isListable: boolean
  /** Whether the seller also declares the extension by which x402 catalogs list paid resources. */
  isListableByX402: boolean
  findings: SellerFinding[]
  offers: {
    network: string
    scheme: string
    form: string
    price_usdc: string
    payTo: string
    seller: string
  }[]
  /** A gateway's response to `POST /discovery/validate`; null if no gateway was asked. */
  gateway: Record<string, unknown> | null
}

/**
 * Requests a seller's price from this machine, as a catalog does, and asks a gateway whether its catalog lists the URL.
 *
 * @throws {CliError} if the gateway can't be reached.
 */
export async function examineSeller(
  { seller, method = 'GET', ...flags }: SellerFlags,
  env: NodeJS.ProcessEnv,
): Promise<SellerExamination> {
  const { href: url } = new URL(seller)
  const judged: JudgedNetwork[] = networkNames.map(networkByName).map((network) => ({
    network,
    token: network.usdc,
  }))
  const [{ httpStatus, report }, hidden, gateway] = await Promise.all([
    probeThoroughly({ url, method }, { guard: createAddressGuard({ allowPrivate: true }), networks: judged }),
    findHidden(url),
    flags.gateway === undefined
      ? null
      : askGateway({ url, method }, { ...flags, gateway: flags.gateway }, env),
  ])
  const findings = [...hidden, ...report.findings]
  const isListable = findings.every(({ severity }) => severity !== 'error')
  return {
    url,
    method,
    sent: askedMethod(method),
    httpStatus,
    isListable,
    isListableByX402: isListable && report.declaration !== null,
    findings,
    offers: report.offers.map(toOffer),
    gateway,
  }
}

/** Checks whether the URL's address is public. This machine may reach the URL even if the internet can't. */
async function findHidden(url: string): Promise<SellerFinding[]> {
  try {
    await createAddressGuard({ allowPrivate: false }).check(new URL(url))
    return []
  } catch (error) {
    const why = error instanceof Error ? error.message : 'it cannot be resolved'
    // If the name can't be resolved, the request to the URL already reports that.
    if (/could not be resolved$/.test(why)) return []
    return [finding('url_refused', `Catalogs refuse the URL: ${why}.`)]
  }
}

function toOffer({ network, scheme, form, amount, payTo, seller }: SellerReport['offers'][number]) {
  return { network: network.name, scheme, form, price_usdc: formatUsdc(amount), payTo, seller }
}

/** Asks a gateway. Sends the API key for that gateway, if there is one, because the response then also has unlisted endpoints. */
async function askGateway(
  body: { url: string; method: string },
  { gateway, apiKey }: { gateway: string; apiKey?: string },
  env: NodeJS.ProcessEnv,
): Promise<Record<string, unknown>> {
  const { [defaultProfile]: profile } = await readProfiles(profilesPath(env))
  const isOwn = profile !== undefined && sameGateway(gateway, profile.gatewayUrl)
  const flags = {
    gateway,
    ...(isOwn && { profile: { ...profile, name: defaultProfile } }),
    ...(apiKey && { apiKey }),
  }
  const path = '/discovery/validate'
  return request(flags, { path, body, status: 200, flagOf: { url: '--seller', method: '--method' } }).catch(
    (error) => {
      if (!(error instanceof CliError) || error.code !== 'not_found') throw error
      throw new CliError(
        'no_catalog',
        `--gateway: ${gateway} has no catalog. Leave out --gateway to check the seller without it`,
        error,
      )
    },
  )
}

const statuses = { error: 'fail', warning: 'warn', ok: 'ok' } as const satisfies Record<
  Severity,
  Check['status']
>

/** Converts the result into checks: the findings of this machine, and those of the gateway. */
export function* describeSeller({ findings, gateway }: SellerExamination): Generator<Check> {
  yield* findings.map(toCheck)
  if (gateway === null) return
  const known = new Set(findings.map(({ code }) => code))
  // Also report the gateway's errors: some addresses can be reached from this machine but not from the gateway, and vice versa.
  for (const one of recordsOf(gateway.findings)) {
    const { code, severity, message, advice } = one as unknown as SellerFinding
    if (severity === 'error' && !known.has(code))
      yield toCheck({ code, severity, message: `From the gateway: ${message}`, advice })
  }
  const listings = recordsOf(gateway.listings)
  if (listings.length === 0)
    yield {
      name: 'catalog',
      status: 'warn',
      found: 'The catalog of the gateway does not have this URL.',
      advice:
        'Register it with `tollkeeper provider endpoint`, or sell it through the facilitator with the extension bazaar.',
    }
  for (const listing of listings) yield* describeListing(listing)
}

function* describeListing(listing: Record<string, unknown>): Generator<Check> {
  const name = 'catalog'
  const { status, endpointId, resource, price_usdc: price, l30DaysTotalCalls: calls, lastCalledAt } = listing
  const id = textOf(endpointId) || textOf(resource)
  if (status === 'listed') {
    const paid = lastCalledAt === null ? 'never paid in 30 days' : `${String(calls)} payments in 30 days`
    yield { name, status: 'ok', found: `${id} is listed at ${textOf(price)} USDC, ${paid}.` }
  }
  for (const { code, message, advice } of recordsOf(listing.reasons))
    yield {
      name,
      status: 'fail',
      found: `${id} is not listed: ${textOf(message)} (${textOf(code)})`,
      advice: textOf(advice),
    }
  if (!isRecord(listing.proof)) return
  const { status: proven, finding: found, advice, checkedAt, nextCheckAt } = listing.proof
  const when = `checked ${textOf(checkedAt) || 'never'}, next ${textOf(nextCheckAt)}`
  if (found === null) yield { name: 'proof', status: 'ok', found: `${id} is ${textOf(proven)}: ${when}.` }
  else
    yield {
      name: 'proof',
      status: proven === 'proven' ? 'warn' : 'fail',
      found: `${id} is ${textOf(proven)}: ${textOf(found)} (${when})`,
      advice: textOf(advice),
    }
}

function toCheck({ code, severity, message, advice }: SellerFinding): Check {
  return {
    name: code,
    status: statuses[severity],
    found: message,
    ...(advice !== null && severity !== 'ok' && { advice }),
  }
}

function recordsOf(value: unknown): Record<string, unknown>[] {
  return Array.isArray(value) ? value.filter(isRecord) : []
}

/** Summarizes in one sentence whether catalogs list the URL. */
export function judgeListable({ isListable, isListableByX402, findings }: SellerExamination): string {
  const errors = findings.filter(({ severity }) => severity === 'error').length
  if (!isListable)
    return `A catalog does not list this URL, or lists it last: ${errors} ${errors === 1 ? 'error' : 'errors'} to fix`
  return isListableByX402
    ? 'Catalogs list this URL once it is registered, or paid for through their facilitator'
    : "Tollkeeper's catalog lists this URL once it is registered; x402 catalogs list it only if its 402 has the extension bazaar"
}
