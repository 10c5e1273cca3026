import type { createTabQuestions } from './tabQuestions.ts'

export type TabGateway = ReturnType<typeof createTabQuestions>

/**
 * Creates the functions that ask a gateway about tabs. The first call loads their code. For most tabs, that is when the tab closes.
 */
export function createTabGateway(fetch: typeof globalThis.fetch, gatewayUrl: string): TabGateway {
  const load = async () => (await import('./tabQuestions.ts')).createTabQuestions(fetch, gatewayUrl)
  return {
    read: async (id) => (await load()).read(id),
    close: async (last) => (await load()).close(last),
  }
}
