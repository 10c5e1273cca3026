import { compactVerify } from 'jose'
import { ProtocolError } from '../protocol/errors.ts'
import { parseTabLineClaims, type TabLineClaims, tabLineType } from '../protocol/tabLine.ts'
import { keySet, parse, type ReceiptKeys, translate } from './verifyReceipt.ts'

/** The claims of a tab line with a verified signature. */
export type VerifiedTabLine = TabLineClaims & {
  /** Id of the signing key. */
  kid: string
}

/**
 * Verifies the signature of a tab line (JWS, only ES256, with the `typ` of tab lines), and that its claims are consistent.
 *
 * The tab line proves what the gateway recorded for a provider on a tab, not that USDC moved. `audit` checks the transfers on chain.
 *
 * @param jws the tab line in JWS compact form (RFC 7515), from a provider's receipts.
 * @param keys the gateway's JWKS, or its URL, as for `verifyReceipt`.
 * @param options.issuer the gateway's public URL; rejects a tab line with another `iss`.
 * @returns the claims; amounts are decimal strings of USDC base units.
 * @throws {ProtocolError} `invalid_receipt`; `dependency_unavailable` if the keys can't be fetched.
 * @example
 * import { verifyTabLine } from '@tollkeeper/sdk/audit'
 *
 * export async function requestsOn(tabLine: string): Promise<number> {
 *   const { requests } = await verifyTabLine(tabLine, 'https://gateway.example/.well-known/jwks.json')
 *   return requests
 * }
 */
export async function verifyTabLine(
  jws: string,
  keys: ReceiptKeys,
  options: { issuer?: string } = {},
): Promise<VerifiedTabLine> {
  const { payload, protectedHeader } = await compactVerify(jws, keySet(keys), {
    algorithms: ['ES256'],
  }).catch((error: unknown) => {
    throw translate(error)
  })
  const { typ, kid } = protectedHeader
  if (typ !== tabLineType)
    throw new ProtocolError(
      'invalid_receipt',
      `Tab line: the header must have typ ${tabLineType}, got ${typ}`,
    )
  const claims = parseTabLineClaims(parse(payload))
  if (options.issuer !== undefined && claims.iss !== options.issuer)
    throw new ProtocolError('invalid_receipt', `Tab line: iss must be ${options.issuer}, got ${claims.iss}`)
  if (typeof kid !== 'string')
    throw new ProtocolError('invalid_receipt', 'Tab line: the header has no key id (kid)')
  return { ...claims, kid }
}
