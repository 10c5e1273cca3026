// @ts-expect-error: this module exists only in workerd
import { env as bindings } from 'cloudflare:workers'
import { buy, createShop, type Variables } from './shop.ts'

const env = bindings as Variables
// Create the shop at the top level of the module, as users do. There, a Worker may not draw random bytes, fetch or start a timer.
const shop = createShop(env)

export default {
  async fetch(request: Request, _env: Variables, context: unknown): Promise<Response> {
    const { pathname, searchParams } = new URL(request.url)
    if (pathname === '/buy') return Response.json(await buy(searchParams.get('url') as string, env))
    return shop(request, env, context)
  },
}
