/** Where sellers ask whose middleware sends no header of their own: their API key is a part of the facilitator's URL. */
export const keyPath = '/k/:key'

/** A path as logs may have it: without a key. */
export function withoutKey(path: string): string {
  return path.replace(/^\/k\/[^/]+/, keyPath)
}
