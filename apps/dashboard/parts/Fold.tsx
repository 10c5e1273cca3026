import type { ComponentChildren } from 'preact'
import { useEffect, useState } from 'preact/hooks'

const narrow = '(max-width: 720px)'

/**
 * Folds content on a narrow screen, where it would push the page's main content down. A wide screen shows it without a summary.
 */
export function Fold({ title, children }: { title: string; children: ComponentChildren }) {
  const [isOpen, setIsOpen] = useState(() => !matchMedia(narrow).matches)
  useEffect(() => {
    const media = matchMedia(narrow)
    const follow = () => setIsOpen(!media.matches)
    media.addEventListener('change', follow)
    return () => media.removeEventListener('change', follow)
  }, [])
  return (
    <details class="fold" open={isOpen}>
      <summary>{title}</summary>
      {children}
    </details>
  )
}
