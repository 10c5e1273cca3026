import type { Address } from 'viem'
import type { Challenge } from '../protocol/challenge.ts'
import { parseUrl } from '../protocol/fields.ts'
import type { Network } from '../protocol/networks.ts'
import { isOfTool, toolPrefix } from '../protocol/toolResource.ts'
import { ChallengeRefusedError } from './errors.ts'
import { readChallengeOf } from './headerChallenge.ts'
import type { Answer } from './transport.ts'

/** What a challenge is checked against before anything is signed. */
export type ChallengePolicy = {
  /** The URL that was requested. */
  url: string
  /** The URL that the challenge came from. */
  answeredBy: string
  gatewayUrl: string
  network: Network
  usdc: Address
}

/**
 * Refuses a challenge that differs from what the caller wanted to pay for.
 *
 * @throws {ChallengeRefusedError}
 */
export function checkChallenge(challenge: Challenge, policy: ChallengePolicy): void {
  const { network, usdc } = policy
  const [provider] = challenge.accepts
  const isTool = policy.url.startsWith(toolPrefix)
  const origin = isTool ? policy.url : new URL(policy.url).origin
  if (!isTool && originOf(policy.answeredBy) !== origin) {
    throw new ChallengeRefusedError(`${origin} redirected to ${policy.answeredBy}, which asks for it`)
  }
  if (isTool ? !isOfTool(provider.resource, policy.url) : originOf(provider.resource) !== origin) {
    throw new ChallengeRefusedError(`the challenge is for ${provider.resource}, not for ${origin}`)
  }
  if (provider.network !== network.name) {
    throw new ChallengeRefusedError(
      `the challenge is for the network ${provider.network}, this client pays on ${network.name}`,
    )
  }
  if (provider.asset !== usdc) {
    throw new ChallengeRefusedError(
      `the challenge asks for the token ${provider.asset}, USDC on ${network.name} is ${usdc}`,
    )
  }
  if (canonicalUrl(challenge.issuer) !== canonicalUrl(policy.gatewayUrl)) {
    throw new ChallengeRefusedError(
      `the challenge comes from the gateway ${challenge.issuer}, not from ${policy.gatewayUrl}`,
    )
  }
}

/**
 * Returns the issuer of a 402's challenge, or undefined if the 402 is no challenge.
 *
 * @param gatewayUrl the issuer of a challenge that names none.
 */
export function issuerOf(answer: Answer, gatewayUrl: string): string | undefined {
  try {
    return readChallengeOf(answer, gatewayUrl).issuer
  } catch {
    return undefined
  }
}

/** Checks whether a 402 is a challenge of this gateway. */
export function isIssuedBy(gatewayUrl: string, answer: Answer): boolean {
  const issuer = issuerOf(answer, gatewayUrl)
  return issuer !== undefined && canonicalUrl(issuer) === canonicalUrl(gatewayUrl)
}

/** Removes differences that don't change where a URL points: default port, case of the host, trailing slashes. */
export function canonicalUrl(url: string): string {
  return parseUrl(url)?.href.replace(/\/+$/, '') ?? url
}

function originOf(url: string): string | undefined {
  return parseUrl(url)?.origin
}
