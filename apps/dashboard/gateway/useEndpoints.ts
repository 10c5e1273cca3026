import { useEffect, useState } from 'preact/hooks'
import type { Endpoint, EndpointList } from './answers.ts'
import { type Gateway, GatewayError } from './gateway.ts'
import { useSession } from './session.ts'

/** Time in ms before the list of endpoints is read again. */
const sharedMs = 60_000

/** Lists by session, because another key may belong to another provider. */
const lists = new WeakMap<Gateway, { readAt: number; endpoints: Promise<Endpoint[]> }>()

function readEndpoints(gateway: Gateway, path: string): Promise<Endpoint[]> {
  const known = lists.get(gateway)
  if (known && Date.now() - known.readAt < sharedMs) return known.endpoints
  const endpoints = gateway.get<EndpointList>(`${path}/endpoints`).then((list) => list.endpoints)
  lists.set(gateway, { readAt: Date.now(), endpoints })
  // Discard a failed read, so that the next component that renders reads again.
  endpoints.catch(() => lists.delete(gateway))
  return endpoints
}

/**
 * Returns the provider's endpoints, including disabled ones; an empty list until they are read. All parts of a page share one
 * request for the list.
 */
export function useEndpoints(): readonly Endpoint[] {
  const { gateway, path } = useSession()
  const [endpoints, setEndpoints] = useState<readonly Endpoint[]>([])
  useEffect(() => {
    let isShown = true
    readEndpoints(gateway, path).then(
      (found) => {
        if (isShown) setEndpoints(found)
      },
      (error: unknown) => {
        // If the gateway can't be reached, pages show the endpoints' ids instead of their names.
        if (!(error instanceof GatewayError)) throw error
      },
    )
    return () => {
      isShown = false
    }
  }, [gateway, path])
  return endpoints
}
