import type { ComponentType } from 'preact'
import { useCallback, useEffect, useState } from 'preact/hooks'
import type { Session } from '../gateway/session.ts'
import type { PalettePage, PaletteProps } from './Palette.tsx'

const typing = 'input, textarea, select, [contenteditable]'

/** Opens the palette by a button, by the keys Ctrl K or Cmd K, and by `/` outside of fields. */
export function PaletteButton(props: { session: Session; pages: readonly PalettePage[] }) {
  const [Palette, setPalette] = useState<ComponentType<PaletteProps>>()
  const [isOpen, setIsOpen] = useState(false)
  const open = useCallback(() => {
    import('./Palette.tsx').then(
      (file) => {
        setPalette(() => file.Palette)
        setIsOpen(true)
      },
      // Don't open the palette without the gateway: it would find nothing, and the page already reports that the gateway is
      // unreachable.
      () => {},
    )
  }, [])
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      const { key, ctrlKey, metaKey, altKey, target } = event
      const isCommand = key.toLowerCase() === 'k' && (ctrlKey || metaKey) && !altKey
      const isSlash = key === '/' && !ctrlKey && !metaKey && !altKey
      const isTyping = target instanceof Element && target.closest(typing) !== null
      if (!(isCommand || (isSlash && !isTyping)) || document.querySelector('dialog[open]')) return
      event.preventDefault()
      open()
    }
    addEventListener('keydown', listen)
    return () => removeEventListener('keydown', listen)
  }, [open])
  return (
    <>
      <button
        type="button"
        class="quiet small"
        aria-keyshortcuts="Control+K Meta+K /"
        title="Find a page, a payment, a buyer or a transaction (Ctrl K or /)"
        onClick={open}
      >
        Find
      </button>
      {isOpen && Palette && <Palette {...props} close={() => setIsOpen(false)} />}
    </>
  )
}
