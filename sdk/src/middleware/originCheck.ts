import { parseUrl } from '../protocol/fields.ts'

/** A request's headers about the URL that its buyer called. A buyer may write anything there. */
export type SaidOrigin = {
  /** Full URL as the server sees it. */
  url: string
  /** `X-Forwarded-Proto` and `X-Forwarded-Host`, which proxies add. */
  forwardedProto?: string | null | undefined
  forwardedHost?: string | null | undefined
}

/**
 * Warns the provider once if buyers seem to call another origin than the one they are asked to pay for, which
 * their clients refuse. Nothing else depends on what the request says.
 */
export function createOriginCheck(
  warn: (message: string) => void = console.warn,
): (resource: string, request: SaidOrigin) => void {
  let hasWarned = false
  return (resource, request) => {
    if (hasWarned) return
    const origin = parseUrl(resource)?.origin
    const said = originOf(request)
    if (said === origin) return
    hasWarned = true
    warn(
      `[tollkeeper] Buyers are asked to pay for ${origin}, as the endpoint is registered; this request came to ${said}. ` +
        `If buyers call ${origin} through a proxy, nothing is to be done. If they call another origin, register the ` +
        'endpoint with that one, or set publicUrl to it: their clients refuse to pay for an origin that they did not call.',
    )
  }
}

/** Only an origin comes out, so that a request can't write a line of the log. */
function originOf({ url, forwardedProto, forwardedHost }: SaidOrigin): string {
  const { protocol, host, origin } = new URL(url)
  const proto = first(forwardedProto) ?? protocol.slice(0, -1)
  const said = parseUrl(`${proto}://${first(forwardedHost) ?? host}`)
  return said && /^https?:$/.test(said.protocol) ? said.origin : origin
}

/** Each proxy adds its own at the end. */
function first(list: string | null | undefined): string | undefined {
  return list?.split(',', 1)[0]?.trim() || undefined
}
