/*
 * Filters an upstream's `WWW-Authenticate` (RFC 9110 section 11.6.1). All providers share the gateway's origin, and a browser sends a
 * password again to every URL of an origin that names the same realm. So the gateway gives each provider a separate `Basic` realm, and drops all
 * other schemes that browsers answer without asking the user.
 */

/**
 * Schemes that are dropped: those that browsers answer by themselves, and those of payments, which a caller would read as a request to pay.
 */
const withheld = /^(?:digest|negotiate|ntlm|mutual|hoba|vapid|x402|tollkeeper|payment|l402|lsat)$/i

const token = "[!#$%&'*+.^_`|~\\w-]+"
const challengeStart = new RegExp(`^(${token})(?:\\s+(?!=).+)?$`)
const parameter = new RegExp(`^${token}\\s*=`)

/**
 * Returns the challenges that pass, as the values of `WWW-Authenticate`.
 *
 * @param realm the realm of `Basic`. It replaces the upstream's.
 */
export function loginChallenges(values: readonly string[], realm: string): string[] {
  const challenges = values.flatMap(splitChallenges)
  return challenges.flatMap((challenge) => {
    const [scheme = ''] = challenge.split(/\s/, 1)
    if (withheld.test(scheme)) return []
    return /^basic$/i.test(scheme) ? [`Basic realm="${realm}", charset="UTF-8"`] : [challenge]
  })
}

/** Splits a value into its challenges, each with its parameters. Returns none for a malformed value. */
function splitChallenges(value: string): string[] {
  const parts = splitAtCommas(value)
  if (parts === undefined || /[^\t -~]/.test(value)) return []
  const challenges: string[] = []
  for (const part of parts) {
    if (!parameter.test(part) && challengeStart.test(part)) challenges.push(part)
    else if (challenges.length > 0 && parameter.test(part)) challenges.push(`${challenges.pop()}, ${part}`)
    else return []
  }
  return challenges
}

/** Splits at the commas outside of quotes; undefined if a quote isn't closed. */
function splitAtCommas(value: string): string[] | undefined {
  const parts = ['']
  let isQuoted = false
  for (let at = 0; at < value.length; at++) {
    const character = value[at] ?? ''
    if (isQuoted && character === '\\') {
      parts.push(`${parts.pop()}${character}${value[++at] ?? ''}`)
      continue
    }
    if (character === '"') isQuoted = !isQuoted
    if (character === ',' && !isQuoted) parts.push('')
    else parts.push(`${parts.pop()}${character}`)
  }
  return isQuoted ? undefined : parts.map((part) => part.trim()).filter((part) => part !== '')
}
