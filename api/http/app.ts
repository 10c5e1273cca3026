import type { OpenAPIHono } from '@hono/zod-openapi'
import type { KeyScope } from '@tollkeeper/ledger/registry/apiKeys'
import type { Traced } from '@tollkeeper/runtime/traceRequests'

export type GatewayEnv = {
  Variables: Traced['Variables'] & {
    /** The provider of the API key that was sent. */
    caller: string | undefined
    /** Id of that key. */
    callerKey: string | undefined
    /** What that key may do. */
    callerScope: KeyScope | undefined
    /** Whether an operator's key was sent. */
    isOperator: boolean | undefined
    /** The endpoint of a challenge or verification, once the route has read it, so that its calls are counted. */
    called: { providerId: string; endpointId: string } | undefined
  }
}

export type App = OpenAPIHono<GatewayEnv>
