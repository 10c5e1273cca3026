import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import type { Provider } from './answers.ts'
import { createGateway, type Gateway } from './gateway.ts'

/** Keeps the API key in this tab only: no cookie, nothing that another tab or a later visit could read. */
const storageKey = 'tollkeeper.apiKey'

export const storedKey = {
  read: (): string | null => sessionStorage.getItem(storageKey),
  write: (key: string): void => sessionStorage.setItem(storageKey, key),
  forget: (): void => sessionStorage.removeItem(storageKey),
}

export type Session = {
  provider: Provider
  gateway: Gateway
  /** Of the API key. */
  keyId: string
  /** Takes over what was changed of the provider. */
  update: (provider: Provider) => void
  /** Signs out; `reason` is shown if the user didn't ask for it. */
  end: (reason?: string) => void
}

export const SessionContext = createContext<Session | null>(null)

export function useSession(): Session {
  const session = useContext(SessionContext)
  if (session === null) throw new Error('This view needs a session')
  return session
}

/** @throws {GatewayError} 401 for a key that is not in force */
export async function openSession(key: string): Promise<Omit<Session, 'end' | 'update'>> {
  const gateway = createGateway(key)
  // The key holds its id: tk_<hex>_<secret>.
  const keyId = `key_${key.split('_')[1]}`
  return { gateway, keyId, provider: await gateway.get<Provider>('account') }
}
