/** For sellers whose middleware sends no header of its own: their API key is a part of the facilitator's URL. */
export const keyPath = '/k/:key'

/** A path for logs, without a key. */
export function withoutKey(path: string): string {
  return path.replace(/^\/k\/[^/]+/, keyPath)
}
