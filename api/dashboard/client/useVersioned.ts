import { useState } from 'preact/hooks'
import { type Difference, differences } from './changes.ts'
import { GatewayError } from './gateway.ts'
import { useSession } from './session.ts'

export type Versioned<T> = {
  /** What is changed: as it was opened, or as somebody else left it meanwhile. */
  current: T
  /** What somebody else changed since it was opened. */
  meanwhile: Difference[]
  /**
   * Changes it, if nobody else did since `current`.
   *
   * @throws {GatewayError} `precondition_failed`, once `current` and `meanwhile` say what is there now
   */
  patch: (body: object) => Promise<void>
}

/** Something registered that two people may change at once. */
export function useVersioned<T extends { version: number }>(path: string, opened: T): Versioned<T> {
  const { gateway } = useSession()
  const [{ current, meanwhile }, set] = useState({ current: opened, meanwhile: [] as Difference[] })
  return {
    current,
    meanwhile,
    async patch(body) {
      try {
        await gateway.patch(path, body, current.version)
      } catch (error) {
        if (error instanceof GatewayError && error.code === 'precondition_failed') {
          const now = await gateway.get<T>(path)
          set({ current: now, meanwhile: differences(opened, now) })
        }
        throw error
      }
    },
  }
}
