import { challengeMediaType } from '../protocol/challenge.ts'

/** Maximum length of the header. No browser sends a longer one. */
const maxAcceptLength = 2_000

/**
 * Returns whether a client prefers a page over JSON, by the quality values of its `Accept` header (RFC 9110 section 12.5.1).
 *
 * Only a media range that names HTML counts, because `fetch` and curl accept all types. A browser that navigates lists HTML, and gives other types
 * lower values. If a client gives HTML and JSON the same value, it gets JSON. A client that requests our challenge's media type also gets JSON.
 */
export function prefersHtml(accept: string | null | undefined): boolean {
  if (!accept || accept.length > maxAcceptLength || accept.includes(challengeMediaType)) return false
  let html = 0
  const json = { named: -1, ofApplication: -1, any: -1 }
  for (const part of accept.split(',')) {
    const [range = '', ...parameters] = part.split(';').map((text) => text.trim().toLowerCase())
    const quality = qualityOf(parameters)
    if (range === 'text/html' || range === 'application/xhtml+xml') html = Math.max(html, quality)
    else if (range === 'application/json' || range.endsWith('+json'))
      json.named = Math.max(json.named, quality)
    else if (range === 'application/*') json.ofApplication = Math.max(json.ofApplication, quality)
    else if (range === '*/*') json.any = Math.max(json.any, quality)
  }
  // The most specific media range counts.
  const chosen = [json.named, json.ofApplication, json.any].find((quality) => quality >= 0) ?? 0
  return html > chosen
}

/** Parses a quality value. A malformed value counts as 0, so that it never expresses a preference. */
function qualityOf(parameters: readonly string[]): number {
  const weight = parameters.find((parameter) => parameter.startsWith('q='))
  if (weight === undefined) return 1
  return /^q=(?:0(?:\.\d{0,3})?|1(?:\.0{0,3})?)$/.test(weight) ? Number(weight.slice(2)) : 0
}
