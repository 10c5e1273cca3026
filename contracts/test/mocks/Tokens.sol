// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IBatchSettlement} from "../../interfaces/IBatchSettlement.sol";
import {ISplitterFactory} from "../../interfaces/ISplitterFactory.sol";

/// @notice Accepts every authorization and moves nothing.
contract YesToken {
    fallback() external {}
}

/// @notice Reverts every call with very long data, including authorizationState.
contract NoToken {
    fallback() external {
        assembly {
            revert(0, 100000)
        }
    }
}

/// @notice Moves nothing, and rejects amounts above 1 with very long revert data.
contract LongWindedToken {
    function balanceOf(address) external pure returns (uint256) {
        return 1_000;
    }

    function authorizationState(address, bytes32) external pure returns (bool) {
        return false;
    }

    function transferWithAuthorization(
        address,
        address,
        uint256 value,
        uint256,
        uint256,
        bytes32,
        uint8,
        bytes32,
        bytes32
    ) external pure {
        if (value > 1) _refuse();
    }

    function transfer(address, uint256) external pure returns (bool) {
        _refuse();
    }

    function _refuse() private pure {
        assembly {
            mstore(0, not(0))
            mstore(0x40, 0)
            mstore(0x80, 0)
            revert(0, 20000)
        }
    }
}

/// @notice Rejects address arguments whose upper 12 bytes aren't zero, as Solidity does since 0.8. USDC is older and
/// ignores these bytes.
contract StrictToken {
    function authorizationState(address, bytes32) external pure returns (bool) {
        return false;
    }

    function transferWithAuthorization(
        address,
        address,
        uint256,
        uint256,
        uint256,
        bytes32,
        uint8,
        bytes32,
        bytes32
    ) external pure {}
}

/// @notice Returns a word other than 1 for the state of every authorization.
contract OddToken {
    function authorizationState(address, bytes32) external pure returns (uint256) {
        return 2;
    }

    fallback() external {}
}

/// @notice Settles a batch of the real token inside its own transferWithAuthorization.
contract ReentrantToken {
    address private immutable SETTLEMENT;
    bytes private _inner;

    constructor(address settlement, bytes memory inner) {
        (SETTLEMENT, _inner) = (settlement, inner);
    }

    function authorizationState(address, bytes32) external pure returns (bool) {
        return false;
    }

    fallback() external {
        (bool success,) = SETTLEMENT.call(_inner);
        require(success, "the inner batch failed");
    }
}

/// @notice Settles two batches in one transaction.
contract Twice {
    function settle(IBatchSettlement settlement, bytes calldata first, bytes calldata second)
        external
        returns (bytes memory firstOutcomes, bytes memory secondOutcomes)
    {
        firstOutcomes = _call(settlement, first);
        secondOutcomes = _call(settlement, second);
    }

    function _call(IBatchSettlement settlement, bytes calldata data) private returns (bytes memory) {
        (bool success, bytes memory answer) = address(settlement).call(data);
        require(success, "a batch failed");
        return abi.decode(answer, (bytes));
    }
}

/// @notice Reports a balance for every account, and returns false from every transfer.
contract FalseToken {
    function balanceOf(address) external pure returns (uint256) {
        return 1_000;
    }

    function transfer(address, uint256) external pure returns (bool) {
        return false;
    }
}

/// @notice Burns all gas of every transfer.
contract BurningToken {
    function balanceOf(address) external pure returns (uint256) {
        return 1_000;
    }

    function transfer(address, uint256) external pure returns (bool) {
        assembly ("memory-safe") {
            for {} 1 {} {}
        }
        return true;
    }
}

/// @notice Sweeps the sender again before each transfer.
contract ReentrantTransfers {
    ISplitterFactory private immutable FACTORY;
    address private immutable PLATFORM;
    uint256[] private _splits;
    bool private _inside;
    mapping(address account => uint256) public balanceOf;

    constructor(ISplitterFactory factory, uint256 split, address platform) {
        (FACTORY, PLATFORM) = (factory, platform);
        _splits.push(split);
    }

    function mint(address to, uint256 amount) external {
        balanceOf[to] += amount;
    }

    function transfer(address to, uint256 amount) external returns (bool) {
        if (!_inside) {
            _inside = true;
            FACTORY.sweep(address(this), PLATFORM, _splits);
            _inside = false;
        }
        balanceOf[msg.sender] -= amount;
        balanceOf[to] += amount;
        return true;
    }
}
