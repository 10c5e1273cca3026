import type { OpenAPIHono } from '@hono/zod-openapi'
import type { KeyScope } from '#ledger/registry/apiKeys'
import type { Traced } from '#process/traceRequests'

export type GatewayEnv = {
  Variables: Traced['Variables'] & {
    /** The provider whose API key came along. */
    caller: string | undefined
    /** Id of that key. */
    callerKey: string | undefined
    /** What that key may do. */
    callerScope: KeyScope | undefined
    /** Whether an operator's key came along. */
    isOperator: boolean | undefined
    /** The endpoint that a challenge or verification is for, once the route has read it: its calls are counted. */
    called: { providerId: string; endpointId: string } | undefined
  }
}

export type App = OpenAPIHono<GatewayEnv>
