import type { Address } from 'viem'
import type { Challenge } from '../protocol/challenge.ts'
import { parseUrl } from '../protocol/fields.ts'
import type { Network } from '../protocol/networks.ts'
import { isOfTool, toolPrefix } from '../protocol/toolResource.ts'
import { ChallengeRefusedError } from './errors.ts'
import { readChallengeOf } from './headerChallenge.ts'
import type { Answer } from './transport.ts'

/** The values that a challenge must match before the client signs anything. */
export type ChallengePolicy = {
  /** The URL that was requested. */
  url: string
  /** The URL that sent the challenge. */
  answeredBy: string
  gatewayUrl: string
  network: Network
  usdc: Address
}

/**
 * Rejects a challenge that doesn't match what the caller wanted to pay for.
 *
 * @throws {ChallengeRefusedError}
 */
export function checkChallenge(challenge: Challenge, policy: ChallengePolicy): void {
  const { network, usdc } = policy
  const [provider] = challenge.accepts
  const isTool = policy.url.startsWith(toolPrefix)
  const origin = isTool ? policy.url : new URL(policy.url).origin
  if (!isTool && originOf(policy.answeredBy) !== origin) {
    throw new ChallengeRefusedError(
      `${origin} redirected to ${policy.answeredBy}, which asks for the payment`,
    )
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
  const { name, version } = provider.extra
  if (name !== network.eip712.name || version !== network.eip712.version) {
    // The client signs with USDC's real domain. A gateway that names another domain would reject a signature that the token accepts.
    throw new ChallengeRefusedError(
      `the challenge names the EIP-712 domain ${name} ${version}, but the domain of USDC on ${network.name} is ` +
        `${network.eip712.name} ${network.eip712.version}`,
    )
  }
  if (canonicalUrl(challenge.issuer) !== canonicalUrl(policy.gatewayUrl)) {
    throw new ChallengeRefusedError(
      `the challenge comes from the gateway ${challenge.issuer}, not from ${policy.gatewayUrl}`,
    )
  }
}

/**
 * Returns the issuer of a 402's challenge. Returns undefined if the 402 contains no challenge.
 *
 * @param gatewayUrl the issuer to assume if the challenge names none.
 */
export async function issuerOf(answer: Answer, gatewayUrl: string): Promise<string | undefined> {
  try {
    return (await readChallengeOf(answer, gatewayUrl)).issuer
  } catch {
    return undefined
  }
}

/** Returns whether a 402 contains a challenge of this gateway. */
export async function isIssuedBy(gatewayUrl: string, answer: Answer): Promise<boolean> {
  const issuer = await issuerOf(answer, gatewayUrl)
  return issuer !== undefined && canonicalUrl(issuer) === canonicalUrl(gatewayUrl)
}

/**
 * Removes differences that don't change the target of a URL: the default port, the case of the host, and trailing slashes.
 */
export function canonicalUrl(url: string): string {
  return parseUrl(url)?.href.replace(/\/+$/, '') ?? url
}

function originOf(url: string): string | undefined {
  return parseUrl(url)?.origin
}
