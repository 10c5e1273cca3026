import type { Queryable } from '@tollkeeper/ledger/store/database'
import { AddressRefusedError, createAddressGuard } from '@tollkeeper/runtime/addressGuard'
import { type Check, ok, warn } from './check.ts'

export const hooksCheck = 'hooks'

/** Maximum number of hooks whose addresses are resolved. */
const mostHooks = 100

/** Checks whether the gateway may call each acceptance hook. If not, the hook's `--on-failure` decides whether payments are accepted. */
export async function examineHooks(database: Queryable, allowPrivate: boolean): Promise<Check> {
  const hooks = await database<{ providerId: string; url: string; onFailure: string; total: number }[]>`
    select provider_id as "providerId", url, on_failure as "onFailure", count(*) over ()::int as total
    from accept_hook order by changed_at desc, provider_id limit ${mostHooks}`
  const [first] = hooks
  if (first === undefined) return ok(hooksCheck, 'no provider has a hook')
  const guard = createAddressGuard({ allowPrivate })
  const refused = await Promise.all(
    hooks.map(async ({ providerId, url }) => {
      try {
        await guard.check(new URL(url))
        return []
      } catch (error) {
        if (!(error instanceof AddressRefusedError)) throw error
        return [`${providerId}: ${error.message}`]
      }
    }),
  )
  const [one, ...others] = refused.flat()
  const count = `${first.total} ${first.total === 1 ? 'provider has a hook' : 'providers have hooks'}`
  if (one === undefined) return ok(hooksCheck, `${count}, at reachable addresses`)
  const more = others.length === 0 ? '' : `, and ${others.length} more`
  return warn(
    hooksCheck,
    `${count}; the address of ${one}${more} is refused, so its payments are decided by --on-failure`,
    'ask the provider to change the URL with `tollkeeper provider hook set`',
  )
}
