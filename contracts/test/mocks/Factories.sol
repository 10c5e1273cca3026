// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../../interfaces/IBatchSettlement.sol";

/// @notice Burns all of its gas.
contract BurningFactory {
    fallback() external {
        assembly ("memory-safe") {
            for {} 1 {} {}
        }
    }
}

/// @notice Reverts every call with very long data.
contract LongWindedFactory {
    fallback() external {
        assembly {
            revert(0, 100000)
        }
    }
}

/// @notice Settles a batch when it is asked to sweep.
contract ReentrantFactory {
    IBatchSettlement private immutable SETTLEMENT;
    bytes private _inner;

    constructor(IBatchSettlement settlement, bytes memory inner) {
        (SETTLEMENT, _inner) = (settlement, inner);
    }

    fallback() external {
        (bool success,) = address(SETTLEMENT).call(_inner);
        require(success, "the inner batch failed");
    }
}
