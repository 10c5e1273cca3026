import { parseUrl } from './fields.ts'

/** The beginning of the names under which all MCP tools are sold. */
export const toolPrefix = 'mcp://tool/'

/**
 * Names a tool of MCP as x402 does: `mcp://tool/<name>`. A provider with several servers puts the server's name before the tool's.
 *
 * @param server a name of your choice, if tools of two servers have one name.
 * @returns the name under which the tool's endpoint is registered.
 * @throws {TypeError} for a name that no URL can hold, such as `..`.
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
      `What is sold needs a name without empty parts and parts of dots alone, got "${name}"`,
    )
  }
  return url
}

/** Whether a resource is this tool, on any server. */
export function isOfTool(resource: string, tool: string): boolean {
  return resource.startsWith(toolPrefix) && resource.endsWith(tool.slice(toolPrefix.length - 1))
}
