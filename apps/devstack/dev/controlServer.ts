import { loopback } from '@tollkeeper/runtime/port'
import { answerProblem, toCodedError } from '@tollkeeper/runtime/problem'
import { type RunningServer, serve } from '@tollkeeper/runtime/serve'
import { BaseError } from '@tollkeeper/sdk/protocol/errors'
import { Hono } from 'hono'
import { isAddress } from 'viem'
import { z } from 'zod'
import type { Controls } from './controls.ts'
import { deepestReorg } from './reorg.ts'
import { rpcFaultKinds } from './rpcFaults.ts'

const address = z.custom<`0x${string}`>((value) => typeof value === 'string' && isAddress(value), {
  message: 'expected an address',
})

/** Serves the controls over HTTP, for tests that aren't written in JavaScript. docs/dev.md describes the routes. */
export function serveControls(controls: Controls): Promise<RunningServer> {
  const app = new Hono()
  app.onError((error, c) => answerProblem(c, toCodedError(error)))
  app.notFound((c) => answerProblem(c, new BaseError('not_found')))
  app.use(async (c, next) => {
    refuseWebPages(c.req.raw.headers)
    await next()
  })
  /** The response is `{}` for a function without a result. */
  const post = <Shape extends z.ZodType>(
    path: string,
    body: Shape,
    act: (given: z.output<Shape>) => unknown,
  ) => app.post(path, async (c) => c.json(((await act(await read(c.req.raw, body))) ?? {}) as object))

  app.get('/state', async (c) => c.json(await controls.state()))
  post('/settle', z.strictObject({ timeoutSeconds: z.int().min(1).max(600).optional() }), controls.settle)
  const seconds = z
    .int()
    .min(1)
    .max(10 * 365 * 86_400)
  post('/time', z.strictObject({ seconds }), ({ seconds }) => controls.travel(seconds))
  const blocks = z.int().min(1).max(1_000).default(1)
  post('/mine', z.strictObject({ blocks }), ({ blocks }) => controls.mine(blocks))
  const depth = z.int().min(1).max(deepestReorg)
  const deep = z.union([z.strictObject({ depth }), z.strictObject({ after: z.int().min(0) })])
  post('/reorg', deep, (given) => controls.reorg('depth' in given ? given.depth : given))
  const fault = z.strictObject({
    kind: z.enum(rpcFaultKinds),
    method: z.string().max(100).optional(),
    times: z.int().min(1).optional(),
    delayMs: z.int().min(1).max(600_000).optional(),
  })
  post('/rpc/faults', fault, controls.failRpc)
  app.delete('/rpc/faults', (c) => {
    controls.healRpc()
    return c.json({})
  })
  post('/usdc/blacklist', z.strictObject({ address, blacklisted: z.boolean().default(true) }), (given) =>
    controls.blacklist(given.address, given.blacklisted),
  )
  post('/usdc/pause', z.strictObject({ paused: z.boolean().default(true) }), ({ paused }) =>
    controls.pause(paused),
  )
  const usdc = z.string().regex(/^\d{1,9}(\.\d{1,6})?$/)
  post('/fund', z.strictObject({ address, usdc }), ({ address, usdc }) => controls.fund(address, usdc))
  return serve(app, { host: loopback, port: 0, portVariable: 'CONTROL_PORT' })
}

/**
 * Rejects requests of web pages, because a page in the developer's browser can send requests to this machine. The browser names
 * the page in Origin. If the page's name resolves to this machine (DNS rebinding), that name is in Host.
 */
function refuseWebPages(headers: Headers): void {
  const host = (headers.get('host') ?? '').replace(/:\d+$/, '')
  if (!['127.0.0.1', 'localhost'].includes(host) || headers.has('origin')) {
    throw new BaseError(
      'forbidden',
      'Web pages can’t use the control interface, only programs on this machine can',
    )
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
