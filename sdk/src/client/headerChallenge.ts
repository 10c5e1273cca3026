import { type Challenge, parseChallenge } from '../protocol/challenge.ts'
import type { Answer } from './transport.ts'

/**
 * Returns the challenge of a 402. Some CDNs replace the body of an error but keep x402 v2's header, whose macaroon has the same terms.
 *
 * @param gatewayUrl the gateway to assume if the challenge names none.
 * @throws {ProtocolError} `invalid_challenge` if neither the body nor the header is a challenge. The message describes what is wrong with the body.
 */
export async function readChallengeOf(
  { body, headers }: Pick<Answer, 'body' | 'headers'>,
  gatewayUrl: string,
): Promise<Challenge> {
  try {
    return parseChallenge(body, gatewayUrl)
  } catch (error) {
    const header = headers.get('payment-required')
    if (header === null) throw error
    // Few responses need this code, so load it only when one does.
    const { restoreChallenge } = await import('./restoreChallenge.ts')
    const restored = restoreChallenge(header, gatewayUrl)
    if (restored) return restored
    throw error
  }
}
