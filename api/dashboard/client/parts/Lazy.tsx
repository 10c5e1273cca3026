import type { ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { Empty, Loading } from './View.tsx'

/** Shows the component of a separate file, which is fetched when it is first shown. */
export function Lazy<Props extends object>({
  load,
  props,
}: {
  /** The same function at each render. */
  load: () => Promise<ComponentType<Props>>
  props: Props
}) {
  const [found, setFound] = useState<{ Page: ComponentType<Props> } | 'missing'>()
  useEffect(() => {
    load().then(
      (Page) => setFound({ Page }),
      () => setFound('missing'),
    )
  }, [load])
  if (found === undefined) return <Loading />
  if (found === 'missing') {
    return (
      <Empty title="This page could not be fetched">
        <p>The gateway may be away, or newer than what you see: reload.</p>
      </Empty>
    )
  }
  return <found.Page {...props} />
}
