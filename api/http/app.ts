import type { OpenAPIHono } from '@hono/zod-openapi'
import type { KeyScope } from '@tollkeeper/ledger/registry/apiKeys'
import type { Traced } from '@tollkeeper/runtime/traceRequests'

export type GatewayEnv = {
  Variables: Traced['Variables'] & {
    /** The provider of the API key that was sent. */
    caller: string | undefined
    /** Id of that key. */
    callerKey: string | undefined
    /** Scope of that key. */
    callerScope: KeyScope | undefined
    /** Whether an operator's key was sent. */
    isOperator: boolean | undefined
    /** The endpoint of a challenge or verification. The route sets it after reading it, so that calls are counted for the endpoint. */
    called: { providerId: string; endpointId: string } | undefined
  }
}

export type App = OpenAPIHono<GatewayEnv>
