import type { z } from '@hono/zod-openapi'
import type { Context } from 'hono'
import type { RouteOptions } from '../routeOptions.ts'
import type { App, GatewayEnv } from './app.ts'
import { jsonAnswer } from './problems.ts'
import { type Declaration, type ParamsOf, route } from './route.ts'
import { writerOf } from './writer.ts'

/** What a schema parses; nothing where it has no fields. */
type Asked<S extends z.ZodObject> = keyof S['shape'] extends never ? unknown : z.output<S>

type View<A extends z.ZodObject, Q extends z.ZodObject, S extends z.ZodObject> = Omit<
  Declaration,
  'params' | 'query' | 'responses'
> & {
  params?: A
  query?: Q
  /** What the answer is, and the schema that writes it. */
  answer: readonly [description: string, schema: S]
  /** It answers with CSV as well, by a response of its own, where it is asked to. */
  hasCsv?: true
  /** Called once. What it returns is called with what path and query ask, and returns what was read. */
  open(
    options: RouteOptions,
  ): (asked: Asked<A> & Asked<Q>, c: Context<GatewayEnv>) => Promise<z.input<S> | Response>
}

/** A question and its route. The answer's schema writes what was read: see {@link writerOf}. */
export function view<
  const P extends string,
  S extends z.ZodObject,
  A extends z.ZodObject = ParamsOf<P>,
  Q extends z.ZodObject = ParamsOf<''>,
>(path: P, { answer, hasCsv, open, ...declared }: View<A, Q, S>) {
  const [description, schema] = answer
  const { content } = jsonAnswer(description, schema)
  const csv = hasCsv && { 'text/csv': { schema: { type: 'string' as const } } }
  const get = route('get', path, {
    ...declared,
    responses: { 200: { description, content: { ...content, ...csv } } },
  })
  const write = writerOf(schema)
  return (app: App, options: RouteOptions): void => {
    const read = open(options)
    app.openapi(get, async (c: Context) => {
      // The path wins: its ids are those that the guards have compared with the key.
      const asked = {
        ...(c.req.valid('query' as never) as object),
        ...(c.req.valid('param' as never) as object),
      }
      const found = await read(asked as never, c)
      return found instanceof Response ? found : c.json(write(found), 200)
    })
  }
}
