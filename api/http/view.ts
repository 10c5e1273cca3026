import type { z } from '@hono/zod-openapi'
import type { Context } from 'hono'
import { answerJson } from './answerJson.ts'
import type { App, GatewayEnv } from './app.ts'
import { jsonAnswer } from './problems.ts'
import { type Declaration, type ParamsOf, route } from './route.ts'
import { writerOf } from './writer.ts'

/** The parsed values of a schema; nothing if it has no fields. */
type Asked<S extends z.ZodObject> = keyof S['shape'] extends never ? unknown : z.output<S>

type View<S extends z.ZodObject, O, A extends z.ZodObject, Q extends z.ZodObject> = Omit<
  Declaration,
  'params' | 'query' | 'responses'
> & {
  params?: A
  query?: Q
  /** Description of the answer, and the schema that writes it. */
  answer: readonly [description: string, schema: S]
  /** Whether the view can also answer with CSV, by returning a `Response`. */
  hasCsv?: true
  /** Whether the view can also answer with a page to print, by returning a `Response`. */
  hasHtml?: true
  /**
   * Called once, when the route is added. Its signature declares the options that this view needs. The returned function takes the parsed
   * path and query of a request, and returns what it read.
   */
  open(options: O): (asked: Asked<A> & Asked<Q>, c: Context<GatewayEnv>) => Promise<z.input<S> | Response>
}

/**
 * Declares a GET route. The answer's schema writes what `open`'s function returns: see {@link writerOf}.
 *
 * @returns a function that adds the route to an app. It takes the options that `open` needs.
 */
export function view<
  const P extends string,
  S extends z.ZodObject,
  O,
  A extends z.ZodObject = ParamsOf<P>,
  Q extends z.ZodObject = ParamsOf<''>,
>(path: P, { answer, hasCsv, hasHtml, open, ...declared }: View<S, O, A, Q>) {
  const [description, schema] = answer
  const { content } = jsonAnswer(description, schema)
  const csv = hasCsv && { 'text/csv': { schema: { type: 'string' as const } } }
  const html = hasHtml && { 'text/html': { schema: { type: 'string' as const } } }
  const get = route('get', path, {
    ...declared,
    responses: { 200: { description, content: { ...content, ...csv, ...html } } },
  })
  const write = writerOf(schema)
  return (app: App, options: O): void => {
    const read = open(options)
    app.openapi(get, async (c: Context) => {
      // If path and query contain the same name, the path's value wins, because the guards have compared the path's ids with the API key.
      const asked = {
        ...(c.req.valid('query' as never) as object),
        ...(c.req.valid('param' as never) as object),
      }
      const found = await read(asked as never, c)
      return found instanceof Response ? found : answerJson(c, JSON.stringify(write(found)))
    })
  }
}
