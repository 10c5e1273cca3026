import { parseUrl } from '../protocol/fields.ts'

/** A request's statements about the URL that the buyer called. They are unverified: a buyer can state any URL. */
export type DeclaredOrigin = {
  /** Complete URL, as the server sees it. */
  url: string
  /** `X-Forwarded-Proto` and `X-Forwarded-Host`, which proxies set. */
  forwardedProto?: string | null | undefined
  forwardedHost?: string | null | undefined
}

/**
 * Warns the provider once if buyers seem to call another origin than the one in the challenge. Their clients would refuse such a challenge. A
 * request's own statements about its origin can be false, so they are used only for this warning.
 */
export function createOriginCheck(
  warn: (message: string) => void = console.warn,
): (resource: string, request: DeclaredOrigin) => void {
  let hasWarned = false
  return (resource, request) => {
    if (hasWarned) return
    const origin = parseUrl(resource)?.origin
    const said = originOf(request)
    if (said === origin) return
    hasWarned = true
    warn(
      `[tollkeeper] The endpoint is registered for ${origin}, but this request was sent to ${said}. ` +
        `If buyers call ${origin} through a proxy, ignore this. If they call another origin, register the ` +
        'endpoint with that origin, or set publicUrl to it: clients refuse to pay for an origin that they did not call.',
    )
  }
}

/** Returns only the origin of a URL, so that a request can't add a line to the log. */
function originOf({ url, forwardedProto, forwardedHost }: DeclaredOrigin): string {
  const { protocol, host, origin } = new URL(url)
  const proto = first(forwardedProto) ?? protocol.slice(0, -1)
  const said = parseUrl(`${proto}://${first(forwardedHost) ?? host}`)
  return said && /^https?:$/.test(said.protocol) ? said.origin : origin
}

/** Returns the first entry of a list. Each proxy appends its entry, so the first entry comes from the proxy that is nearest to the buyer. */
function first(list: string | null | undefined): string | undefined {
  return list?.split(',', 1)[0]?.trim() || undefined
}
