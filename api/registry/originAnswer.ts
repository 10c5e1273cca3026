import type { Finding, Unproven } from '@tollkeeper/ledger/discovery/originProofs'
import type { SellerReport } from '@tollkeeper/ledger/discovery/sellerAnswer'
import { finding } from '@tollkeeper/ledger/discovery/sellerFindings'

/** Decides whether a URL's own answer proves that the URL belongs to the seller. A 402 that names the seller's wallet proves it. */
export function findOwner(
  { findings, forms, offers, payees, declaration }: SellerReport,
  one: Unproven,
): Finding {
  const fault = findings.find(({ severity }) => severity === 'error')
  const isAskedFor = forms.length > 0
  if (!isAskedFor) {
    const { code, message } = fault ?? finding('no_challenge')
    return { kind: 'unproven', isAway: true, code, why: message }
  }
  if (!payees.includes(one.payTo)) {
    const { code, message } = finding('pays_others')
    return { kind: 'unproven', isAway: false, code, why: message }
  }
  // The answer may also offer payments to the wallet on other networks or in other tokens. A declared resource is paid directly, an
  // endpoint also through its splitter.
  const offer = offers.find(
    ({ network, payTo, seller, scheme }) =>
      network.chainId === one.chainId &&
      (one.declaredId === null ? seller === one.payTo : payTo === one.payTo && scheme === 'exact'),
  )
  if (offer === undefined) return { kind: 'proven', said: null, amount: null }
  const said =
    one.declaredId === null || declaration === null
      ? null
      : { ...declaration, maxTimeoutSeconds: offer.maxTimeoutSeconds }
  return { kind: 'proven', said, amount: offer.amount }
}
