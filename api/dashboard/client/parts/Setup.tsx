import type { ComponentChildren } from 'preact'
import { href } from '../routing.ts'
import { useSession } from '../session.ts'
import type { Polled } from '../usePolled.ts'
import { Tabs } from './bits.tsx'
import { View } from './View.tsx'

const pages = [
  ['endpoints', 'Endpoints'],
  ['wallets', 'Wallets'],
  ['keys', 'API keys'],
  ['upstream', 'Without code'],
  ['webhooks', 'Webhooks'],
  ['provider', 'Provider'],
  ['history', 'History'],
] as const

export type SetupPage = (typeof pages)[number][0]

export function titleOf(page: SetupPage): string {
  return pages.find(([name]) => name === page)?.[1] ?? ''
}

/** A page of what a provider has registered. */
export function SetupView<T>(props: {
  page: SetupPage
  /** Default: the page's own. */
  title?: string
  actions?: ComponentChildren
  polled: Polled<T>
  children: (data: T) => ComponentChildren
}) {
  const { page, title = titleOf(page), children, actions, ...view } = props
  const isReading = useSession().scope === 'read'
  const tabs = (
    <>
      <Tabs
        label="Setup"
        links={pages.map(([name, title]) => [href('setup', name), title])}
        current={href('setup', page)}
      />
      {isReading && <p class="box good">Your API key may only read: nothing can be changed with it.</p>}
    </>
  )
  return (
    <View title={title} below={tabs} actions={!isReading && actions} {...view}>
      {(data) => (
        <fieldset class="bare" disabled={isReading}>
          {children(data)}
        </fieldset>
      )}
    </View>
  )
}
