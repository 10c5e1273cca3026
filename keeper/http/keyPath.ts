/** The path prefix that holds an API key, for sellers whose middleware can't send a header. */
export const keyPath = '/k/:key'

/** Removes the API key from a path, for logs. */
export function withoutKey(path: string): string {
  return path.replace(/^\/k\/[^/]+/, keyPath)
}
