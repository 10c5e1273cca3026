import type { Endpoint } from '../gateway/answers.ts'

/** A description of an endpoint's state in the catalog. */
export type ListingWords = {
  tone: 'good' | 'busy' | 'bad'
  /** The state in one to three words. */
  title: string
  /** The reason, in sentences; null if nothing is wrong. */
  text: string | null
  /** How to fix it; null if nothing is to be done. */
  advice: string | null
}

/** Describes whether the catalog lists an endpoint, and if not, why and what to do. */
export function describeListing({ listing, proof }: Pick<Endpoint, 'listing' | 'proof'>): ListingWords {
  if (listing.status === 'not_listed') {
    const join = (words: readonly string[]) => (words.length === 0 ? null : words.join(' '))
    const isNew = listing.reasons.every(({ code }) => code === 'not_yet')
    return {
      tone: isNew ? 'busy' : 'bad',
      title: isNew ? 'Listed in a moment' : 'Not listed',
      text: join(listing.reasons.map(({ message }) => message)),
      advice: join(listing.reasons.map(({ advice }) => advice)),
    }
  }
  if (proof === null || (proof.status === 'proven' && proof.finding === null))
    return { tone: 'good', title: 'Listed', text: null, advice: null }
  const { status, finding, advice } = proof
  if (status === 'unasked')
    return {
      tone: 'busy',
      title: 'Listed',
      text: 'The gateway checks its URL within a minute.',
      advice: null,
    }
  return {
    tone: 'busy',
    title: status === 'proven' ? 'Listed, check failed' : 'Listed last',
    text: finding ?? 'Its URL did not ask for a payment to your wallet.',
    advice,
  }
}
