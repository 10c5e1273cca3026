import { decodeReceipt } from '@tollkeeper/sdk/protocol/receipt'
import { parseTabLineClaims } from '@tollkeeper/sdk/protocol/tabLine'
import type { JSONWebKeySet } from 'jose'
import { CliError } from '../terminal/cliError.ts'
import { readText } from './readReceipts.ts'

export type KeySource = {
  jwks: JSONWebKeySet
  /** The file or URL of the keys, for the report. */
  source: string
  /** Whether the issuer was read from the receipts. If so, the audit proves only that this issuer signed the receipts. */
  isSelfNamed: boolean
}

/** Reads the gateway's keys from the source that the auditor gave, or else from the issuer that the receipts name. */
export async function readKeys(source: string | undefined, receipts: readonly string[]): Promise<KeySource> {
  const chosen = source ?? findIssuer(receipts)
  const text = /^https?:\/\//.test(chosen)
    ? await fetchText(chosen)
    : await readText('--jwks', chosen, 'no_keys')
  return { jwks: parseKeys(text, chosen), source: chosen, isSelfNamed: source === undefined }
}

function findIssuer(receipts: readonly string[]): string {
  const issuers = new Set(
    receipts.flatMap((receipt) => decodeReceipt(receipt)?.iss ?? decodeIssuer(receipt) ?? []),
  )
  const [issuer] = issuers
  if (issuer === undefined) {
    throw new CliError(
      'no_keys',
      '--jwks: none of the receipts names a gateway, so give its JWKS as a URL or a file',
    )
  }
  if (issuers.size > 1) {
    throw new CliError(
      'no_keys',
      `--jwks: the receipts name ${issuers.size} gateways (${[...issuers].slice(0, 3).join(', ')}); audit the receipts of one gateway at a time`,
    )
  }
  if (!URL.canParse(issuer) || !/^https?:$/.test(new URL(issuer).protocol)) {
    throw new CliError(
      'no_keys',
      '--jwks: the receipts name no http(s) gateway, so give its JWKS as a URL or a file',
    )
  }
  return `${issuer.replace(/\/$/, '')}/.well-known/jwks.json`
}

/** Returns the gateway that a tab line names. The line's signature is verified later. */
function decodeIssuer(jws: string): string | undefined {
  try {
    const payload: unknown = JSON.parse(Buffer.from(jws.split('.')[1] ?? '', 'base64url').toString())
    return parseTabLineClaims(payload).iss
  } catch {
    return undefined
  }
}

function parseKeys(text: string, source: string): JSONWebKeySet {
  try {
    const json = JSON.parse(text) as Partial<JSONWebKeySet>
    if (Array.isArray(json.keys) && json.keys.length > 0) return { keys: json.keys }
  } catch {
    // The text isn't JSON: report it below as an invalid key set.
  }
  throw new CliError('no_keys', `--jwks: ${source} is not a JWK set ({"keys":[…]})`)
}

async function fetchText(url: string): Promise<string> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(10_000) })
    if (!response.ok) throw new Error(`HTTP ${response.status}`)
    return await response.text()
  } catch (error) {
    throw new CliError('no_keys', `--jwks: ${url} can't be fetched: ${(error as Error).message}`, error)
  }
}
