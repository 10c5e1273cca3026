import { Hono } from 'hono'
import { isAddress } from 'viem'
import { z } from 'zod'
import { loopback } from '#process/port'
import { answerProblem, toCodedError } from '#process/problem'
import { type RunningServer, serve } from '#process/serve'
import { BaseError } from '#protocol/errors'
import type { Controls } from './controls.ts'
import { deepestReorg } from './reorg.ts'
import { rpcFaultKinds } from './rpcFaults.ts'

const address = z.custom<`0x${string}`>((value) => typeof value === 'string' && isAddress(value), {
  message: 'expected an address',
})
const bodies = {
  settle: z.strictObject({ timeoutSeconds: z.int().min(1).max(600).optional() }),
  time: z.strictObject({
    seconds: z
      .int()
      .min(1)
      .max(10 * 365 * 86_400),
  }),
  mine: z.strictObject({ blocks: z.int().min(1).max(1_000).default(1) }),
  reorg: z.union([
    z.strictObject({ depth: z.int().min(1).max(deepestReorg) }),
    z.strictObject({ after: z.int().min(0) }),
  ]),
  fault: z.strictObject({
    kind: z.enum(rpcFaultKinds),
    method: z.string().max(100).optional(),
    times: z.int().min(1).optional(),
    delayMs: z.int().min(1).max(600_000).optional(),
  }),
  blacklist: z.strictObject({ address, blacklisted: z.boolean().default(true) }),
  pause: z.strictObject({ paused: z.boolean().default(true) }),
  fund: z.strictObject({ address, usdc: z.string().regex(/^\d{1,9}(\.\d{1,6})?$/) }),
}

/** The control interface for tests that aren't in JavaScript. docs/dev.md describes it. */
export function serveControls(controls: Controls): Promise<RunningServer> {
  const app = new Hono()
  app.onError((error, c) => answerProblem(c, toCodedError(error)))
  app.notFound((c) => answerProblem(c, new BaseError('not_found')))
  app.use(async (c, next) => {
    refuseWebPages(c.req.raw.headers)
    await next()
  })

  app.get('/state', async (c) => c.json(await controls.state()))
  app.post('/settle', async (c) => c.json(await controls.settle(await read(c.req.raw, bodies.settle))))
  app.post('/time', async (c) => {
    const { seconds } = await read(c.req.raw, bodies.time)
    return c.json(await controls.travel(seconds))
  })
  app.post('/mine', async (c) => {
    const { blocks } = await read(c.req.raw, bodies.mine)
    return c.json(await controls.mine(blocks))
  })
  app.post('/reorg', async (c) => {
    const depth = await read(c.req.raw, bodies.reorg)
    return c.json(await controls.reorg('depth' in depth ? depth.depth : depth))
  })
  app.post('/rpc/faults', async (c) => {
    controls.failRpc(await read(c.req.raw, bodies.fault))
    return c.json({})
  })
  app.delete('/rpc/faults', (c) => {
    controls.healRpc()
    return c.json({})
  })
  app.post('/usdc/blacklist', async (c) => {
    const { address, blacklisted } = await read(c.req.raw, bodies.blacklist)
    await controls.blacklist(address, blacklisted)
    return c.json({})
  })
  app.post('/usdc/pause', async (c) => {
    const { paused } = await read(c.req.raw, bodies.pause)
    await controls.pause(paused)
    return c.json({})
  })
  app.post('/fund', async (c) => {
    const { address, usdc } = await read(c.req.raw, bodies.fund)
    await controls.fund(address, usdc)
    return c.json({})
  })
  return serve(app, { host: loopback, port: 0, portVariable: 'CONTROL_PORT' })
}

/**
 * Refuses web pages: a page in the developer's browser can send requests to this machine. The browser names the page in Origin;
 * and if the page's name resolves to this machine (DNS rebinding), that name is in Host.
 */
function refuseWebPages(headers: Headers): void {
  const host = (headers.get('host') ?? '').replace(/:\d+$/, '')
  if (!['127.0.0.1', 'localhost'].includes(host) || headers.has('origin')) {
    throw new BaseError('forbidden', 'The control interface answers programs on this machine, no web pages')
  }
}

async function read<Schema extends z.ZodType>(request: Request, schema: Schema): Promise<z.output<Schema>> {
  const text = await request.text()
  let body: unknown = {}
  try {
    if (text !== '') body = JSON.parse(text)
  } catch (error) {
    throw new BaseError('invalid_json', undefined, { cause: error })
  }
  const { data, error } = schema.safeParse(body)
  if (error) {
    const [issue] = error.issues
    throw new BaseError('invalid_field', `${issue?.path.join('.') || 'body'}: ${issue?.message}`)
  }
  return data
}
