import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import type { Account, Operation, Provider } from './answers.ts'
import { createGateway, type Gateway } from './gateway.ts'

/** Name of the API key in the tab's session storage. Only this tab can read the key there, and only until the tab is closed. */
const storageKey = 'tollkeeper.apiKey'

export const storedKey = {
  read: (): string | null => sessionStorage.getItem(storageKey),
  write: (key: string): void => sessionStorage.setItem(storageKey, key),
  forget: (): void => sessionStorage.removeItem(storageKey),
}

export type Session = {
  provider: Provider
  /** The path of the provider's own resources. */
  path: string
  gateway: Gateway
  keyId: string
  /** The authority of the API key. */
  scope: Account['scope']
  /** Updates the provider's data in the session after a change. */
  update: (provider: Provider) => void
}

/** Signs out. `reason` is shown if the user didn't sign out deliberately. */
export type End = (reason?: string) => void

export const EndContext = createContext<End>(() => {})

export const SessionContext = createContext<Session | null>(null)

export function useSession(): Session {
  const session = useContext(SessionContext)
  if (session === null) throw new Error('This view needs a session')
  return session
}

/** @throws {GatewayError} 401 for an invalid key */
export async function openOperatorSession(key: string): Promise<Gateway> {
  const gateway = createGateway(key)
  await gateway.get<Operation>('operator/operation')
  return gateway
}

/** @throws {GatewayError} 401 for an invalid key */
export async function openSession(key: string): Promise<Omit<Session, 'update'>> {
  const gateway = createGateway(key)
  // The key contains its id: tk_<hex>_<secret>.
  const keyId = `key_${key.split('_')[1]}`
  const { scope, ...provider } = await gateway.get<Account>('account')
  return { gateway, keyId, scope, provider, path: `providers/${provider.providerId}` }
}
