import type { Challenge } from '../protocol/challenge.ts'
import type { Asked } from './offers.ts'
import type { createHeldPasses } from './passes.ts'
import type { Attempt } from './presentation.ts'
import type { Answer } from './transport.ts'

/** Loads the code for passes when a seller sends a pass, or when a store may contain one. Most clients never receive a pass. */
export function createPassLoader(options: Parameters<typeof createHeldPasses>[0]) {
  let loading: Promise<ReturnType<typeof createHeldPasses>> | undefined
  async function load() {
    loading ??= import('./passes.ts').then((passes) => passes.createHeldPasses(options))
    return loading.catch((error) => {
      loading = undefined
      throw error
    })
  }
  return {
    /** Keeps the pass of a paid response. Never throws, because the buyer has paid for the response and must receive it. */
    async keep(asked: Asked, answer: Answer): Promise<void> {
      if (!answer.headers.has('service-pass')) return
      try {
        await (await load()).keep(asked, answer)
      } catch {
        options.log('the pass could not be kept')
      }
    },
    /**
     * Presents the pass for the request's route or, after a 402, the pass for the challenge's endpoint.
     *
     * @throws {ChallengeRefusedError} if a challenge's pass differs from the pass in the challenge's macaroon. Also if the store can't be read,
     * because it may already contain the pass that the challenge sells.
     */
    async present<A extends Answer>(attempt: Attempt<A>, challenge?: Challenge) {
      if (challenge) (await import('./passes.ts')).requirePromised(challenge)
      const held = await (options.store ? load() : loading)?.catch(() => undefined)
      return held?.present(attempt, challenge?.endpointId)
    },
  }
}
