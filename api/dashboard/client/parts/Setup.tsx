import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import { href } from '../routing.ts'
import { useSession } from '../session.ts'
import type { Polled } from '../usePolled.ts'
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

type SetupPage = (typeof pages)[number][0]

/** A page of what a provider has registered. */
export function SetupView<T>(props: {
  page: SetupPage
  /** Default: the page's own. */
  title?: string
  actions?: ComponentChildren
  polled: Polled<T>
  children: (data: T) => ComponentChildren
}) {
  const { page, title = pages.find(([name]) => name === page)?.[1] ?? '', children, actions, ...view } = props
  const isReading = useSession().scope === 'read'
  const tabs = (
    <>
      <nav class="tabs" aria-label="Setup">
        {pages.map(([name, title]) => (
          <a key={name} href={href('setup', name)} aria-current={name === page ? 'page' : undefined}>
            {title}
          </a>
        ))}
      </nav>
      {isReading && <p class="notice">Your API key may only read: nothing can be changed with it.</p>}
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

/** Says what was done, to screen readers as well. */
export function useNotice(): { notice: ComponentChildren; tell: (text: string) => void } {
  const [text, tell] = useState('')
  return {
    notice: (
      <p class={text === '' ? 'unseen' : 'notice'} role="status">
        {text}
      </p>
    ),
    tell,
  }
}
