import { z } from '@hono/zod-openapi'

/**
 * Creates a writer of answers by their schema: it writes each object's fields that the schema has, converted by its transforms.
 *
 * Unlike `schema.parse`, it validates nothing and takes a quarter of the time. Validation isn't needed: the compiler has compared the results of
 * queries with the schema, and it is better to show an unexpected row than to withhold it.
 */
export function writerOf<S extends z.core.$ZodType>(schema: S): (read: z.input<S>) => z.output<S> {
  return createWriter(schema) as (read: z.input<S>) => z.output<S>
}

function createWriter(schema: z.core.$ZodType): (read: unknown) => unknown {
  if (schema instanceof z.ZodPipe && schema.in instanceof z.ZodTransform) {
    const { transform } = schema.in.def
    return (read) => transform(read, { value: read, issues: [] })
  }
  if (schema instanceof z.ZodNullable || schema instanceof z.ZodOptional) {
    const write = createWriter(schema.unwrap())
    return (read) => (read === null || read === undefined ? read : write(read))
  }
  if (schema instanceof z.ZodArray) {
    const write = createWriter(schema.element)
    return (read) => (read as unknown[]).map((one) => write(one))
  }
  // A loose object is written unchanged.
  const { catchall } = schema instanceof z.ZodObject ? schema.def : {}
  if (!(schema instanceof z.ZodObject) || (catchall && !(catchall instanceof z.ZodNever)))
    return (read) => read
  const fields = Object.entries(schema.shape as z.ZodRawShape).map(
    ([name, field]) => [name, createWriter(field)] as const,
  )
  return (read) => {
    const written: Record<string, unknown> = {}
    for (const [name, write] of fields) written[name] = write((read as Record<string, unknown>)[name])
    return written
  }
}
