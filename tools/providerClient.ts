/**
 * Writes the generated files of `@tollkeeper/sdk/provider` from the gateway's own OpenAPI document: types of its requests, answers and
 * webhooks, and a method for each operation that `tools/provider/names.ts` names.
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { readDescription } from './provider/description.ts'
import { renderProvider } from './provider/resources.ts'

const root = join(import.meta.dirname, '..')

/** Returns the generated files' texts by path, for the script that writes them and for the test that compares them. */
export async function renderProviderClient(): Promise<Map<string, string>> {
  return renderProvider(await readDescription())
}

if (import.meta.main) {
  for (const [path, text] of await renderProviderClient()) writeFileSync(join(root, path), text)
}
