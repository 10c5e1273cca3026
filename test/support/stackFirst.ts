import type { TestSpecification } from 'vitest/node'
import { BaseSequencer } from 'vitest/node'

/** Runs the test files that start a whole stack first, so that small files fill the gaps at the end of a run. */
export default class StackFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const sorted = await super.sort(files)
    const isStack = ({ moduleId }: TestSpecification) => moduleId.includes('/test/stack/')
    return [...sorted.filter(isStack), ...sorted.filter((file) => !isStack(file))]
  }
}
