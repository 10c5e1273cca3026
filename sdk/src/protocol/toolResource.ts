import { parseUrl } from './fields.ts'

/** The prefix of all MCP tools' resource names. */
export const toolPrefix = 'mcp://tool/'

/**
 * Returns the resource name of an MCP tool in x402's form: `mcp://tool/<name>`. For a provider with several servers, the server's name comes before
 * the tool's: `mcp://tool/<server>/<name>`.
 *
 * @param server a name that you choose. Needed only if two of your servers have tools with the same name.
 * @returns the name with which to register the tool's endpoint.
 * @throws {TypeError} for a name that a URL can't contain, such as `..`.
 * @example
 * import { toolResource } from '@tollkeeper/sdk/mcp'
 *
 * console.log(toolResource('forecast'))
 * // mcp://tool/forecast
 */
export function toolResource(name: string, server?: string): string {
  const segments = [...(server === undefined ? [] : [server]), ...name.split('/')]
  const url = toolPrefix + segments.map(encodeURIComponent).join('/')
  if (segments.includes('') || parseUrl(url)?.href !== url) {
    throw new TypeError(
      `A tool needs a name without empty parts and without parts of only dots, got "${name}"`,
    )
  }
  return url
}

/** Returns whether a resource is this tool, on any server. */
export function isOfTool(resource: string, tool: string): boolean {
  return resource.startsWith(toolPrefix) && resource.endsWith(tool.slice(toolPrefix.length - 1))
}
