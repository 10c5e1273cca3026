import { readVariable } from '@tollkeeper/runtime/env'
import { acceptChallenge } from '@tollkeeper/sdk/client/paymentFlow'
import { send, startDeadline } from '@tollkeeper/sdk/client/transport'
import { formatUsdc, parseUsdc } from '@tollkeeper/sdk/protocol/amount'
import { CliError, exitStatus } from '../terminal/cliError.ts'
import type { JsonFlag } from '../terminal/options.ts'
import { printable, printJson, printLines, printNote } from '../terminal/output.ts'
import { type Price, readPrice, refusalOf } from './readPrice.ts'

export type PriceFlags = JsonFlag & { method: string; max: string }

/** Maximum number of bytes of a 402 response to read. */
const maxResponseBytes = 1_000_000
const timeoutMs = 15_000

/** Requests a URL and prints its price. @returns the exit status. */
export async function printPrice(asked: string, { method, max, json }: PriceFlags): Promise<number> {
  const { href: url } = new URL(asked)
  const { env } = process
  const network = readVariable(env, 'NETWORK')
  const headers = new Headers()
  acceptChallenge(headers)
  const answer = await ask(url, { method, headers })
  if (answer.status !== 402) return reportFree(url, method, answer.status, json)
  const usdcOnLocalhost = readVariable(env, 'USDC_ADDRESS')
  const gatewayUrl = readVariable(env, 'GATEWAY_URL')
  const price = await readPrice(answer, { gatewayUrl, usdcOnLocalhost })
  if (price === undefined)
    throw new CliError('unknown_price', `${url} returned 402, but no price in the form of x402 or Tollkeeper`)
  const refusal = await refusalOf(answer, price, {
    url,
    network,
    usdcOnLocalhost,
    gatewayUrl,
    limit: parseUsdc(max),
  })
  if (json) printJson(toJson(url, price, { max, network, refusal }))
  else print(url, price, { max, network, refusal })
  return refusal === null ? exitStatus.ok : exitStatus.unwell
}

async function ask(url: string, init: RequestInit) {
  try {
    return await send(fetch, url, init, startDeadline(timeoutMs, null, maxResponseBytes))
  } catch (error) {
    throw new CliError('seller_unreachable', `<url>: ${(error as Error).message}`, error)
  }
}

function reportFree(url: string, method: string, status: number, json = false): number {
  if (json) printJson({ url, paid: false, code: 'not_paid', status })
  else
    printNote(
      `${url} costs nothing: it returned HTTP ${status} for ${method} and requested no payment (not_paid)`,
    )
  if (!json && status >= 400) printNote('If that is unexpected, check the URL and --method')
  return exitStatus.free
}

type Verdict = { max: string; network: string; refusal: string | null }

function toJson(url: string, price: Price, { max, network, refusal }: Verdict) {
  const { seller, description, offers, fee, gatewayUrl, providerId, endpointId, tab } = price
  return {
    url,
    paid: true,
    seller,
    description,
    offers: offers.map(({ amount, ...offer }) => ({ ...offer, amount_usdc: formatUsdc(amount) })),
    fee_usdc: fee === null ? null : formatUsdc(fee),
    gatewayUrl,
    providerId,
    endpointId,
    tab,
    buy: { network, max_usdc: max, pays: refusal === null, reason: refusal },
  }
}

function print(url: string, price: Price, { max, network, refusal }: Verdict): void {
  const { offers, fee, gatewayUrl, providerId, tab } = price
  const amounts = offers.map(({ network, testnet, amount }) => {
    const money = testnet ? 'testnet funds, no real value' : 'real money'
    return `${formatUsdc(amount)} USDC on ${network} (${money})`
  })
  const feePart = fee === null ? '' : `, of which ${formatUsdc(fee)} USDC is the gateway's fee`
  const payees = [...new Set(offers.map(({ payTo }) => payTo))].join(', ')
  const by = gatewayUrl === null ? '' : ` (${providerId} at ${gatewayUrl})`
  const onTab = tab?.isOnly ? 'It is sold on a tab only. ' : tab ? 'It can be put on a tab. ' : ''
  const verdict =
    refusal === null
      ? `Within --max ${max}. Next: \`NETWORK=${network} tollkeeper buy ${url}\``
      : `buy would not pay this: ${refusal}`
  const lines = [
    amounts.length === 0 ? `${url} requests a payment` : `${url} costs ${amounts.join(', or ')}${feePart}`,
    payees === '' ? '' : `Paid to ${payees}${by}`,
    `${onTab}${verdict}`,
  ]
  printLines(...lines.map(printable))
}
