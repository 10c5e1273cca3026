import { type Gate, type GateDecision, paymentIdHeader, paymentStatusHeader } from './gate.ts'

/**
 * What a handler's response gets once it is known: a failure voids the payment, and then carries no receipt.
 *
 * @param handled whether the handler failed, and its `Cache-Control`.
 * @returns headers by name; undefined for one that goes.
 */
export async function paidHeaders(
  gate: Gate,
  { payment, headers }: Extract<GateDecision, { kind: 'serve' }>,
  handled: { hasFailed: boolean; cacheControl: string | null },
): Promise<[name: string, value: string | undefined][]> {
  const isVoided = handled.hasFailed && (await gate.void(payment))
  return [
    ['Cache-Control', paidCacheControl(handled.cacheControl)],
    [paymentIdHeader, payment.paymentId],
    [paymentStatusHeader, isVoided ? 'voided' : 'verified'],
    ...Object.entries(headers).map(([name, value]): [string, string | undefined] => [
      name,
      isVoided ? undefined : value,
    ]),
  ]
}

/**
 * The `Cache-Control` of a response that was paid for: no shared cache may serve it to those who did not pay (RFC 9111
 * section 5.2.2).
 *
 * @param given what the handler set; its `private` and `no-store` are kept.
 */
export function paidCacheControl(given: string | null | undefined): string {
  const directives = (given ?? '').split(',').map((directive) => directive.trim())
  const kept = directives.filter(
    (directive) => directive !== '' && !/^(?:public$|s-maxage=)/i.test(directive),
  )
  if (kept.some((directive) => /^(?:private|no-store)$/i.test(directive))) return kept.join(', ')
  return ['private', ...kept].join(', ')
}
