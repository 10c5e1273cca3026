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
