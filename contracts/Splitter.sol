// SPDX-License-Identifier: MIT
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ISplitter} from "./interfaces/ISplitter.sol";
import {ISplitterFactory} from "./interfaces/ISplitterFactory.sol";

/// @title Splitter
/// @notice See ISplitter, which documents every function and error.
contract Splitter is ISplitter {
    using SafeERC20 for IERC20;

    /// Offset of a clone's arguments, after the code that OpenZeppelin's Clones writes. SplittersTest compares it with
    /// `Clones.fetchCloneArgs`, which costs 400 gas more.
    uint256 private constant ARGUMENTS = 0x2d;
    /// Size of the arguments: `split` (a word) and the platform (20 bytes).
    uint256 private constant ARGUMENTS_SIZE = 0x34;

    ISplitterFactory private immutable FACTORY = ISplitterFactory(msg.sender);

    /// @inheritdoc ISplitter
    function terms()
        public
        view
        returns (address provider, uint256 providerShare, address platform, uint256 platformShare)
    {
        uint256 split;
        assembly ("memory-safe") {
            extcodecopy(address(), 0, ARGUMENTS, ARGUMENTS_SIZE)
            split := mload(0)
            platform := shr(96, mload(0x20))
        }
        provider = address(uint160(split >> 96));
        providerShare = uint48(split >> 48);
        platformShare = uint48(split);
    }

    /// @inheritdoc ISplitter
    function sweep(address token) external {
        uint256 balance = IERC20(token).balanceOf(address(this));
        if (balance == 0) return;
        (address provider, uint256 providerShare, address platform, uint256 platformShare) = terms();
        uint256 toPlatform = balance * platformShare / (providerShare + platformShare);
        if (toPlatform != 0 && !IERC20(token).trySafeTransfer(platform, toPlatform)) {
            IERC20(token).safeTransfer(_platformSplitter(platform), toPlatform);
        }
        if (toPlatform != balance) IERC20(token).safeTransfer(provider, balance - toPlatform);
    }

    /// Returns the splitter that pays only the platform.
    function _platformSplitter(address platform) private view returns (address) {
        return FACTORY.splitterOf(uint256(uint160(platform)) << 96 | 1 << 48, platform);
    }
}
