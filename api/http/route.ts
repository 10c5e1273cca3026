import { createRoute, type RouteConfig, z } from '@hono/zod-openapi'
import { requireOwner } from './authenticate.ts'
import { type ProblemStatus, problems } from './problems.ts'
import * as wire from './wire.ts'

/** The schemas of the names in a path. */
const pathIds = {
  id: wire.providerId,
  endpointId: wire.endpointId,
  walletId: wire.walletId,
  keyId: wire.keyId,
  paymentId: wire.paymentId,
  webhookId: wire.webhookId,
  deliveryId: wire.deliveryId,
  tabId: wire.tabId,
  payer: wire.address,
}

type PathName = keyof typeof pathIds

export type Declaration = Pick<
  RouteConfig,
  'summary' | 'description' | 'tags' | 'security' | 'middleware' | 'responses'
> & {
  /** Default: derived from the names in the path. */
  params?: z.ZodObject
  query?: z.ZodObject
  headers?: z.ZodObject
  /** Schema of the JSON body. */
  body?: z.ZodType
  /** Statuses of refusals that don't follow from the declaration's other members. */
  refuses?: readonly ProblemStatus[]
}

type Route<M, P extends string, D extends Declaration> = Pick<D, 'responses'> & {
  method: M
  path: P
  request: {
    params: D extends { params: infer S extends z.ZodObject } ? S : ParamsOf<P>
  } & (D extends { query: infer S extends z.ZodObject } ? { query: S } : unknown) &
    (D extends { headers: infer S extends z.ZodObject } ? { headers: S } : unknown) &
    (D extends { body: infer S extends z.ZodType } ? { body: ReturnType<typeof jsonBody<S>> } : unknown)
}

export type ParamsOf<P extends string> = z.ZodObject<Pick<typeof pathIds, NamesIn<P>>>

type NamesIn<P extends string> = P extends `${string}{${infer Name}}${infer Rest}`
  ? (Name & PathName) | NamesIn<Rest>
  : never

/**
 * Declares a route for `app.openapi`. The refusals that the OpenAPI document lists follow from this declaration: who may call the route, and its
 * path, query, headers and body. A route that uses neither database nor chain has no refusals and needs only `createRoute`.
 */
export function route<const M extends RouteConfig['method'], const P extends string, D extends Declaration>(
  method: M,
  path: P,
  declared: D,
): Route<M, P, D> {
  const { params = paramsOf(path), query, headers, body, refuses: _, ...given }: Declaration = declared
  const config = createRoute({
    method,
    path,
    ...given,
    request: {
      ...(params && { params }),
      ...(query && { query }),
      ...(headers && { headers }),
      ...(body && { body: jsonBody(body) }),
    },
    responses: { ...declared.responses, ...problems(...refusalsOf(path, declared)) },
  })
  return config as unknown as Route<M, P, D>
}

function jsonBody<B extends z.ZodType>(schema: B) {
  return { required: true, content: { 'application/json': { schema } } } as const
}

function namesIn(path: string): PathName[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name]) => name as PathName)
}

function paramsOf(path: string): z.ZodObject | undefined {
  const names = namesIn(path)
  return names.length === 0
    ? undefined
    : z.object(Object.fromEntries(names.map((name) => [name, pathIds[name]])))
}

function refusalsOf(path: string, declared: Declaration): ProblemStatus[] {
  const { security, middleware, query, headers, body, refuses = [] } = declared
  const isOwners = middleware === requireOwner
  const needsKey = security?.every((key) => Object.keys(key).length > 0)
  // The `{id}` of an owner's route causes no 404: a caller that names another provider's id is refused (403) before the id is looked up.
  const looksUp = namesIn(path).some((name) => !(isOwners && name === 'id'))
  const statuses: ProblemStatus[] = [503, ...refuses]
  if (security !== undefined) statuses.push(401)
  if (isOwners) statuses.push(403)
  if (!needsKey) statuses.push(429)
  if (looksUp) statuses.push(404)
  if (query ?? body) statuses.push(400, 422)
  if (body) statuses.push(413)
  if (headers && 'if-match' in headers.shape) statuses.push(412, 428)
  return statuses
}
